import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import jakarta.servlet.http.HttpServletResponseWrapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.io.Writer;
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
 *
 * <p>A line of input is a number N, which it prints again: from now on, the answer to every Nth
 * commit is lost, as by a proxy that dies; 0: none is.
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
        ServletContextHandler context = new ServletContextHandler();
        LossyServlet servlet = new LossyServlet(new RESTCatalogAdapter(catalog));
        context.addServlet(new ServletHolder(servlet), "/*");
        Server server = new Server(new InetSocketAddress("127.0.0.1", 0));
        server.setHandler(context);
        server.start();
        System.out.println(server.getURI().getPort());
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            servlet.commits = 0;
            servlet.commitsPerLoss = Integer.parseInt(line);
            System.out.println(line);
        }
        System.exit(0);
    }

    static class LossyServlet extends RESTCatalogServlet {
        volatile int commitsPerLoss;
        volatile int commits;

        LossyServlet(RESTCatalogAdapter adapter) {
            super(adapter);
        }

        @Override
        protected void doPost(HttpServletRequest request, HttpServletResponse response)
                throws IOException {
            boolean isCommit = request.getPathInfo().matches(".*/tables/[^/]+");
            if (!isCommit || commitsPerLoss == 0 || ++commits % commitsPerLoss != 0) {
                super.doPost(request, response);
                return;
            }
            super.doPost(request, new HttpServletResponseWrapper(response) {
                @Override
                public PrintWriter getWriter() {
                    return new PrintWriter(Writer.nullWriter());
                }
            });
            response.sendError(HttpServletResponse.SC_BAD_GATEWAY);
        }
    }
}
