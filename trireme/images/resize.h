// Resizing by LibTorch's kernel for bytes.
#pragma once
#include <trireme/images/image.h>

namespace trireme::images {

// Bilinear, with antialiasing: the bits of torchvision's v2 resize on uint8 on the CPU. An image
// that has the size already is copied. `from` and `into` are two images. Any thread may call; the
// kernel works on the calling thread.
// Throws Error(invalid_argument) for an empty image or size.
void resize(const Image& from, Size to, Image& into);

}  // namespace trireme::images
