// Linear regression in C#, with any number of processes: y = 2 x + 1 by gradient descent.
//
//   mcs Linear.cs
//   LD_LIBRARY_PATH=$PREFIX/lib trireme launch --workers 2 -- mono Linear.exe
using System;
using System.Globalization;
using System.Runtime.InteropServices;

// The layout of DLPack's DLTensor.
[StructLayout(LayoutKind.Sequential)]
struct Tensor {
    public IntPtr Data;
    public int DeviceType, DeviceId, Dimensions;
    public byte Code, Bits;
    public ushort Lanes;
    public IntPtr Shape, Strides;
    public ulong ByteOffset;
}

static class Trireme {
    const string Library = "trireme_c";
    [DllImport(Library)] public static extern IntPtr trireme_last_error();
    [DllImport(Library)] public static extern int trireme_exit_code(int status);
    [DllImport(Library)] public static extern int trireme_world_join(out IntPtr world);
    [DllImport(Library)] public static extern int trireme_world_rank(IntPtr world);
    [DllImport(Library)] public static extern int trireme_world_share(
        IntPtr world, long batch, out long first, out long count);
    [DllImport(Library)] public static extern int trireme_world_leave(IntPtr world);
    [DllImport(Library)] public static extern void trireme_world_free(IntPtr world);
    [DllImport(Library)] public static extern int trireme_gradients_new(
        IntPtr world, IntPtr[] parameters, IntPtr[] names, int count, out IntPtr gradients);
    [DllImport(Library)] public static extern int trireme_gradients_reduce(
        IntPtr gradients, IntPtr[] tensors, long samples);
    [DllImport(Library)] public static extern void trireme_gradients_free(IntPtr gradients);

    public static void Check(int status) {
        if (status == 0) return;
        Console.Error.WriteLine(Marshal.PtrToStringAnsi(trireme_last_error()));
        Environment.Exit(trireme_exit_code(status));
    }
}

// Numbers in memory that the garbage collector does not move, and the tensor that describes them.
class Numbers {
    readonly IntPtr data, shape;
    public readonly IntPtr Tensor;

    public Numbers(int count) {
        data = Marshal.AllocHGlobal(8 * count);
        shape = Marshal.AllocHGlobal(8);
        Marshal.WriteInt64(shape, count);
        Tensor = Marshal.AllocHGlobal(Marshal.SizeOf(typeof(Tensor)));
        var layout = new Tensor { Data = data, DeviceType = 1, Dimensions = 1, Code = 2, Bits = 64,
                                  Lanes = 1, Shape = shape };
        Marshal.StructureToPtr(layout, Tensor, false);
    }
    public double this[int i] {
        get { return BitConverter.Int64BitsToDouble(Marshal.ReadInt64(data, 8 * i)); }
        set { Marshal.WriteInt64(data, 8 * i, BitConverter.DoubleToInt64Bits(value)); }
    }
}

static class Linear {
    const long Batch = 12;

    static void Main() {
        CultureInfo.CurrentCulture = CultureInfo.InvariantCulture;
        IntPtr world, gradients;
        Trireme.Check(Trireme.trireme_world_join(out world));
        int rank = Trireme.trireme_world_rank(world);
        var parameters = new Numbers(2);  // Slope and offset. Rank 0's first values count.
        parameters[0] = rank == 0 ? 0.5 : 7;
        parameters[1] = rank == 0 ? -0.5 : 7;
        var names = new[] { Marshal.StringToHGlobalAnsi("line") };
        Trireme.Check(Trireme.trireme_gradients_new(world, new[] { parameters.Tensor }, names, 1,
                                                    out gradients));
        long first, count;
        Trireme.Check(Trireme.trireme_world_share(world, Batch, out first, out count));
        var own = new Numbers(2);
        for (int step = 0; step < 200; ++step) {
            // The gradients of the mean squared error over this rank's samples.
            own[0] = own[1] = 0;
            for (long i = first; i < first + count; ++i) {
                double x = (double)i / Batch;
                double error = parameters[0] * x + parameters[1] - (2 * x + 1);
                own[0] += 2 * error * x / count;
                own[1] += 2 * error / count;
            }
            Trireme.Check(Trireme.trireme_gradients_reduce(gradients, new[] { own.Tensor }, count));
            for (int p = 0; p < 2; ++p) parameters[p] -= 0.3 * own[p];
        }
        if (rank == 0)
            Console.WriteLine("slope {0:F12} offset {1:F12}", parameters[0], parameters[1]);
        Trireme.trireme_gradients_free(gradients);
        Trireme.Check(Trireme.trireme_world_leave(world));
        Trireme.trireme_world_free(world);
    }
}
