// Linear regression in Rust, with any number of processes: y = 2 x + 1 by gradient descent.
//
//   rustc -O linear.rs -L $PREFIX/lib -C link-arg=-Wl,-rpath,$PREFIX/lib
//   trireme launch --workers 2 -- ./linear
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::ptr;

// The layout of DLPack's DLTensor.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

#[link(name = "trireme_c")]
extern "C" {
    fn trireme_last_error() -> *const c_char;
    fn trireme_exit_code(status: c_int) -> c_int;
    fn trireme_world_join(world: *mut *mut c_void) -> c_int;
    fn trireme_world_rank(world: *const c_void) -> c_int;
    fn trireme_world_share(world: *mut c_void, batch: i64, first: *mut i64,
                           count: *mut i64) -> c_int;
    fn trireme_world_leave(world: *mut c_void) -> c_int;
    fn trireme_world_free(world: *mut c_void);
    fn trireme_gradients_new(world: *mut c_void, parameters: *const *const Tensor,
                             names: *const *const c_char, count: i32,
                             gradients: *mut *mut c_void) -> c_int;
    fn trireme_gradients_reduce(gradients: *mut c_void, tensors: *const *const Tensor,
                                samples: i64) -> c_int;
    fn trireme_gradients_free(gradients: *mut c_void);
}

const BATCH: i64 = 12;
static SHAPE: [i64; 1] = [1];

fn check(status: c_int) {
    if status == 0 {
        return;
    }
    unsafe {
        eprintln!("{}", CStr::from_ptr(trireme_last_error()).to_string_lossy());
        std::process::exit(trireme_exit_code(status));
    }
}

fn tensor_of(value: &mut f64) -> Tensor {
    Tensor {
        data: value as *mut f64 as *mut c_void,
        device_type: 1,
        device_id: 0,
        ndim: 1,
        code: 2,
        bits: 64,
        lanes: 1,
        shape: SHAPE.as_ptr(),
        strides: ptr::null(),
        byte_offset: 0,
    }
}

fn main() {
    let mut world: *mut c_void = ptr::null_mut();
    check(unsafe { trireme_world_join(&mut world) });
    let rank = unsafe { trireme_world_rank(world) };
    // Rank 0's first values count.
    let (mut slope, mut offset) = if rank == 0 { (0.5, -0.5) } else { (7.0, 7.0) };
    let names = [CString::new("slope").unwrap(), CString::new("offset").unwrap()];
    let name_pointers = [names[0].as_ptr(), names[1].as_ptr()];
    let mut gradients: *mut c_void = ptr::null_mut();
    let tensors = [tensor_of(&mut slope), tensor_of(&mut offset)];
    let pointers = [&tensors[0] as *const Tensor, &tensors[1] as *const Tensor];
    check(unsafe {
        trireme_gradients_new(world, pointers.as_ptr(), name_pointers.as_ptr(), 2, &mut gradients)
    });
    let (mut first, mut count) = (0i64, 0i64);
    check(unsafe { trireme_world_share(world, BATCH, &mut first, &mut count) });
    for _ in 0..200 {
        // The gradients of the mean squared error over this rank's samples.
        let (mut of_slope, mut of_offset) = (0.0, 0.0);
        for i in first..first + count {
            let x = i as f64 / BATCH as f64;
            let error = slope * x + offset - (2.0 * x + 1.0);
            of_slope += 2.0 * error * x / count as f64;
            of_offset += 2.0 * error / count as f64;
        }
        let own = [tensor_of(&mut of_slope), tensor_of(&mut of_offset)];
        let own_pointers = [&own[0] as *const Tensor, &own[1] as *const Tensor];
        check(unsafe { trireme_gradients_reduce(gradients, own_pointers.as_ptr(), count) });
        slope -= 0.3 * of_slope;
        offset -= 0.3 * of_offset;
    }
    if rank == 0 {
        println!("slope {slope:.12} offset {offset:.12}");
    }
    unsafe { trireme_gradients_free(gradients) };
    check(unsafe { trireme_world_leave(world) });
    unsafe { trireme_world_free(world) };
}
