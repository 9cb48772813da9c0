import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** HDFS in one process: a name node and a data node, until its input ends. */
public final class MiniHdfs {
  public static void main(String[] folder) throws Exception {
    MiniDFSCluster cluster =
        new MiniDFSCluster.Builder(new Configuration(), new File(folder[0])).numDataNodes(1).build();
    cluster.waitActive();
    System.out.println(cluster.getURI());
    while (System.in.read() >= 0) {}
    System.exit(0);
  }
}
