package kafkascan.oracle;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FeatureMetadata;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;

/** What brokers report about features, quotas, the quorum and log dirs, and changes of features and quotas. */
final class Cluster {
    private final String bootstrapServers;

    Cluster(String bootstrapServers) {
        this.bootstrapServers = bootstrapServers;
    }

    void addCommandsTo(Map<String, ClientDriver.Command> commands) {
        commands.put("setQuota", this::setQuota);
        commands.put("upgradeFeatures", this::upgradeFeatures);
        commands.put("describeFeatures", this::describeFeatures);
        commands.put("describeQuotas", this::describeQuotas);
        commands.put("describeQuorum", this::describeQuorum);
        commands.put("describeLogDirs", this::describeLogDirs);
    }

    /** Sets or, without a value, removes a quota; a null name is the default of its type. */
    private Object setQuota(JsonNode arguments) throws Exception {
        Map<String, String> names = new HashMap<>();
        arguments.get("entity").properties().forEach(one ->
            names.put(one.getKey(), one.getValue().isNull() ? null : one.getValue().asText()));
        Double value = arguments.hasNonNull("value") ? arguments.get("value").asDouble() : null;
        ClientQuotaAlteration.Op change = new ClientQuotaAlteration.Op(arguments.get("quota").asText(), value);
        try (Admin admin = admin()) {
            admin.alterClientQuotas(List.of(new ClientQuotaAlteration(new ClientQuotaEntity(names), List.of(change))))
                .all().get();
        }
        return null;
    }

    /** Raises every feature that the controller knows, except that of the quorum, to its highest level. */
    private Object upgradeFeatures(JsonNode arguments) throws Exception {
        try (Admin admin = admin()) {
            FeatureMetadata known = admin.describeFeatures().featureMetadata().get();
            Map<String, FeatureUpdate> updates = new TreeMap<>();
            known.supportedFeatures().forEach((name, range) -> {
                boolean isLower = !known.finalizedFeatures().containsKey(name)
                    || known.finalizedFeatures().get(name).maxVersionLevel() < range.maxVersion();
                if (isLower && range.maxVersion() > 0 && !name.equals("kraft.version")) {
                    updates.put(name, new FeatureUpdate(range.maxVersion(), FeatureUpdate.UpgradeType.UPGRADE));
                }
            });
            admin.updateFeatures(updates, new UpdateFeaturesOptions()).all().get();
        }
        return null;
    }

    private Object describeFeatures(JsonNode arguments) throws Exception {
        Map<String, Short> levels = new TreeMap<>();
        try (Admin admin = admin()) {
            admin.describeFeatures().featureMetadata().get().finalizedFeatures()
                .forEach((name, range) -> levels.put(name, range.maxVersionLevel()));
        }
        return levels;
    }

    private Object describeQuotas(JsonNode arguments) throws Exception {
        List<Map<String, Object>> found = new ArrayList<>();
        try (Admin admin = admin()) {
            admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().forEach((entity, quotas) ->
                found.add(Map.of("entity", entity.entries(), "quotas", quotas)));
        }
        return found;
    }

    private Object describeQuorum(JsonNode arguments) throws Exception {
        try (Admin admin = admin()) {
            QuorumInfo quorum = admin.describeMetadataQuorum().quorumInfo().get();
            return Map.of(
                "leader", quorum.leaderId(),
                "highWatermark", quorum.highWatermark(),
                "voters", quorum.voters().stream().map(QuorumInfo.ReplicaState::replicaId).toList());
        }
    }

    private Object describeLogDirs(JsonNode arguments) throws Exception {
        List<List<Object>> found = new ArrayList<>();
        try (Admin admin = admin()) {
            Map<String, LogDirDescription> dirs = admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1);
            dirs.forEach((path, dir) -> dir.replicaInfos().keySet().forEach(one ->
                found.add(List.of(path, one.topic(), one.partition()))));
        }
        return found;
    }

    private Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", bootstrapServers));
    }
}
