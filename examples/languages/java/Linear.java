// Linear regression in Java, with any number of processes: y = 2 x + 1 by gradient descent. It
// calls the library through JNA.
//
//   javac -cp /usr/share/java/jna.jar Linear.java
//   trireme launch --workers 2 -- \
//       java -cp /usr/share/java/jna.jar:. -Djna.library.path=$PREFIX/lib Linear
import com.sun.jna.Library;
import com.sun.jna.Memory;
import com.sun.jna.Native;
import com.sun.jna.Pointer;
import com.sun.jna.ptr.LongByReference;
import com.sun.jna.ptr.PointerByReference;
import java.util.Locale;

public class Linear {
  interface Trireme extends Library {
    String trireme_last_error();
    int trireme_exit_code(int status);
    int trireme_world_join(PointerByReference world);
    int trireme_world_rank(Pointer world);
    int trireme_world_share(
        Pointer world, long batch, LongByReference first, LongByReference count);
    int trireme_world_leave(Pointer world);
    void trireme_world_free(Pointer world);
    int trireme_gradients_new(Pointer world, Pointer[] parameters, String[] names, int count,
                              PointerByReference gradients);
    int trireme_gradients_reduce(Pointer gradients, Pointer[] tensors, long samples);
    void trireme_gradients_free(Pointer gradients);
  }

  static final Trireme LIBRARY = Native.load("trireme_c", Trireme.class);
  static final long BATCH = 12;

  static void check(int status) {
    if (status == 0) return;
    System.err.println(LIBRARY.trireme_last_error());
    System.exit(LIBRARY.trireme_exit_code(status));
  }

  /** Numbers outside the Java heap, and the tensor that describes them: DLPack's DLTensor. */
  static class Numbers {
    final Memory data, shape = new Memory(8), tensor = new Memory(48);

    Numbers(int count) {
      data = new Memory(8L * count);
      shape.setLong(0, count);
      tensor.clear();
      tensor.setPointer(0, data);
      tensor.setInt(8, 1);           // The CPU's memory.
      tensor.setInt(16, 1);          // One dimension.
      tensor.setByte(20, (byte) 2);  // Floating point,
      tensor.setByte(21, (byte) 64); // of 64 bits,
      tensor.setShort(22, (short) 1);
      tensor.setPointer(24, shape);
    }
    double get(int i) {
      return data.getDouble(8L * i);
    }
    void set(int i, double value) {
      data.setDouble(8L * i, value);
    }
  }

  public static void main(String[] words) {
    PointerByReference place = new PointerByReference();
    check(LIBRARY.trireme_world_join(place));
    Pointer world = place.getValue();
    int rank = LIBRARY.trireme_world_rank(world);
    Numbers parameters = new Numbers(2); // Slope and offset. Rank 0's first values count.
    parameters.set(0, rank == 0 ? 0.5 : 7);
    parameters.set(1, rank == 0 ? -0.5 : 7);
    check(LIBRARY.trireme_gradients_new(
        world, new Pointer[] {parameters.tensor}, new String[] {"line"}, 1, place));
    Pointer gradients = place.getValue();
    LongByReference first = new LongByReference(), count = new LongByReference();
    check(LIBRARY.trireme_world_share(world, BATCH, first, count));
    Numbers own = new Numbers(2);
    for (int step = 0; step < 200; ++step) {
      // The gradients of the mean squared error over this rank's samples.
      own.set(0, 0);
      own.set(1, 0);
      for (long i = first.getValue(); i < first.getValue() + count.getValue(); ++i) {
        double x = (double) i / BATCH;
        double error = parameters.get(0) * x + parameters.get(1) - (2 * x + 1);
        own.set(0, own.get(0) + 2 * error * x / count.getValue());
        own.set(1, own.get(1) + 2 * error / count.getValue());
      }
      check(LIBRARY.trireme_gradients_reduce(
          gradients, new Pointer[] {own.tensor}, count.getValue()));
      for (int p = 0; p < 2; ++p) parameters.set(p, parameters.get(p) - 0.3 * own.get(p));
    }
    LIBRARY.trireme_gradients_free(gradients);
    check(LIBRARY.trireme_world_leave(world));
    LIBRARY.trireme_world_free(world);
    // Used here, the parameters stay in memory as long as the library reads them.
    if (rank == 0)
      System.out.println(String.format(
          Locale.ROOT, "slope %.12f offset %.12f", parameters.get(0), parameters.get(1)));
  }
}
