import java.net.InetSocketAddress;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;

/**
 * Serves a catalog in a database over Iceberg's REST protocol, to this machine only, until its
 * input ends. Prints its port.
 *
 * <p>Usage: RestCatalog JDBC_URI WAREHOUSE
 */
public class RestCatalog {
    public static void main(String[] arguments) throws Exception {
        Map<String, String> properties = Map.of(
                "type", "jdbc",
                "uri", arguments[0],
                "jdbc.schema-version", "V1",
                "warehouse", arguments[1]);
        Catalog catalog =
                CatalogUtil.buildIcebergCatalog("backend", properties, new Configuration());
        RESTCatalogServlet servlet = new RESTCatalogServlet(new RESTCatalogAdapter(catalog));
        ServletContextHandler context = new ServletContextHandler();
        context.addServlet(new ServletHolder(servlet), "/*");
        Server server = new Server(new InetSocketAddress("127.0.0.1", 0));
        server.setHandler(context);
        server.start();
        System.out.println(server.getURI().getPort());
        System.in.read();
        System.exit(0);
    }
}
