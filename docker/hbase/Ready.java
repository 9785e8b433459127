import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;

/** Ends with 0 once a table could be created and dropped; tries for as long as the first argument says (seconds). */
public final class Ready {
    public static void main(String[] arguments) throws Exception {
        long deadline = System.nanoTime() + Long.parseLong(arguments[0]) * 1_000_000_000L;
        Configuration configuration = HBaseConfiguration.create();
        configuration.setInt("hbase.client.retries.number", 1);
        configuration.setInt("zookeeper.recovery.retry", 0);
        while (true) {
            try (Connection connection = ConnectionFactory.createConnection(configuration);
                    Admin admin = connection.getAdmin()) {
                TableName name = TableName.valueOf("hbasemk_ready");
                if (!admin.tableExists(name)) {
                    admin.createTable(TableDescriptorBuilder.newBuilder(name)
                            .setColumnFamily(ColumnFamilyDescriptorBuilder.of("d")).build());
                }
                if (admin.isTableEnabled(name)) {
                    admin.disableTable(name);
                }
                admin.deleteTable(name);
                return;
            } catch (Exception error) {
                if (System.nanoTime() > deadline) {
                    throw error;
                }
                Thread.sleep(250);
            }
        }
    }
}
