import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** Runs HDFS: a name node at the given port, and so many data nodes, until it is killed. */
public class MiniDfs {
    public static void main(String[] args) throws Exception {
        int port = Integer.parseInt(args[0]);
        File directory = new File(args[1]);
        int dataNodes = Integer.parseInt(args[2]);
        boolean first = !directory.exists();
        new MiniDFSCluster.Builder(new Configuration(), directory)
            .nameNodePort(port).numDataNodes(dataNodes).format(first).build().waitActive();
        System.out.println("ready");
        Thread.currentThread().join();
    }
}
