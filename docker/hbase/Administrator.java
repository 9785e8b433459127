import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.RegionInfo;
import org.apache.hadoop.hbase.replication.ReplicationPeerConfig;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Reads commands of an administrator, one a line, and answers each: lines of data
 * after "= ", then "ok" or "error" and the reason. Other lines are log messages.
 * Exits with 1 at the end of the input if a command failed.
 */
public final class Administrator {
    private final Connection connection;
    private final Admin admin;

    private Administrator(Connection connection) throws Exception {
        this.connection = connection;
        this.admin = connection.getAdmin();
    }

    private static byte[] region(String encodedName) {
        return Bytes.toBytes(encodedName);
    }

    private List<String> regions(TableName table) throws Exception {
        List<String> lines = new ArrayList<>();
        try (var locator = connection.getRegionLocator(table)) {
            locator.clearRegionLocationCache();
            for (var location : locator.getAllRegionLocations()) {
                RegionInfo info = location.getRegion();
                if (location.getServerName() != null) {
                    lines.add(info.getEncodedName() + " " + location.getServerName() + " "
                            + Bytes.toHex(info.getStartKey()) + "-" + Bytes.toHex(info.getEndKey()));
                }
            }
        }
        return lines;
    }

    /** replicate PEER KEY TABLE...: begins to send the tables, which must be empty, to another cluster. */
    private void replicate(String[] words) throws Exception {
        List<TableName> tables = Arrays.stream(words).skip(3).map(TableName::valueOf).toList();
        Map<TableName, List<String>> families = new HashMap<>();
        tables.forEach(table -> families.put(table, null));
        admin.addReplicationPeer(words[1], ReplicationPeerConfig.newBuilder()
                .setClusterKey(words[2])
                .setReplicateAllUserTables(false)
                .setTableCFsMap(families)
                .build());
        for (TableName table : tables) {
            admin.enableTableReplication(table);
        }
    }

    private List<String> run(String[] words) throws Exception {
        switch (words[0]) {
            case "servers" -> {
                List<String> lines = new ArrayList<>();
                admin.getRegionServers().forEach(server -> lines.add(server.toString()));
                return lines;
            }
            case "master" -> {
                return List.of(admin.getMaster().toString());
            }
            case "backup-masters" -> {
                List<String> lines = new ArrayList<>();
                admin.getBackupMasters().forEach(server -> lines.add(server.toString()));
                return lines;
            }
            case "regions" -> {
                return regions(TableName.valueOf(words[1]));
            }
            case "move" -> admin.move(region(words[1]), ServerName.valueOf(words[2]));
            case "split" -> admin.splitRegionAsync(region(words[1]), Bytes.fromHex(words[2])).get();
            case "merge" -> admin.mergeRegionsAsync(new byte[][] {region(words[1]), region(words[2])}, true).get();
            case "flush" -> admin.flush(TableName.valueOf(words[1]));
            case "major-compact" -> admin.majorCompact(TableName.valueOf(words[1]));
            case "snapshot" -> admin.snapshot(words[2], TableName.valueOf(words[1]));
            case "disable" -> admin.disableTable(TableName.valueOf(words[1]));
            case "enable" -> admin.enableTable(TableName.valueOf(words[1]));
            case "restore" -> admin.restoreSnapshot(words[1]);
            case "clone" -> admin.cloneSnapshot(words[1], TableName.valueOf(words[2]));
            case "delete-snapshot" -> admin.deleteSnapshot(words[1]);
            case "replicate" -> replicate(words);
            case "remove-peer" -> admin.removeReplicationPeer(words[1]);
            case "balance" -> {
                return List.of(String.valueOf(admin.balance()));
            }
            default -> throw new IllegalArgumentException("unknown command " + words[0]);
        }
        return List.of();
    }

    public static void main(String[] arguments) throws Exception {
        var configuration = HBaseConfiguration.create();
        configuration.setInt("hbase.client.retries.number", 3);
        var input = new BufferedReader(new InputStreamReader(System.in));
        boolean failed = false;
        try (Connection connection = ConnectionFactory.createConnection(configuration)) {
            var administrator = new Administrator(connection);
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                try {
                    administrator.run(line.trim().split(" ")).forEach(answer -> System.out.println("= " + answer));
                    System.out.println("ok");
                } catch (Exception error) {
                    failed = true;
                    System.out.println("error " + String.valueOf(error).replace('\n', ' '));
                }
                System.out.flush();
            }
        }
        if (failed) {
            System.exit(1);
        }
    }
}
