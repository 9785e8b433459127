import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import org.apache.hadoop.hbase.util.EnvironmentEdge;
import org.apache.hadoop.hbase.util.EnvironmentEdgeManager;

/**
 * Runs a server of HBase whose clock differs from the machine's by the milliseconds in a file, which may change at any
 * time: ShiftedClock CLASS ARGUMENTS. Without the file the clocks are the same.
 */
public final class ShiftedClock implements EnvironmentEdge {
    private static final Path FILE = Path.of("/run/hbasemk/clock");
    private volatile long offset;

    @Override
    public long currentTime() {
        return System.currentTimeMillis() + offset;
    }

    private void follow() {
        while (true) {
            try {
                offset = Files.exists(FILE) ? Long.parseLong(Files.readString(FILE).trim()) : 0;
            } catch (IOException | NumberFormatException error) {
                // The file is just being written.
            }
            try {
                Thread.sleep(50);
            } catch (InterruptedException error) {
                return;
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        ShiftedClock clock = new ShiftedClock();
        Thread thread = new Thread(clock::follow, "clock");
        thread.setDaemon(true);
        thread.start();
        EnvironmentEdgeManager.injectEdge(clock);
        Class.forName(arguments[0])
                .getMethod("main", String[].class)
                .invoke(null, (Object) Arrays.copyOfRange(arguments, 1, arguments.length));
    }
}
