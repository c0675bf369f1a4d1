// The part of libtorch that the engine uses on a GPU, behind C functions: multiplications (cuBLASLt through ATen) and
// graphs (at::cuda::CUDAGraph). The engine's side, with the contract, is src/torch.rs.
//
// Every function returns 0, or 1 and leaves a message for firstlight_error() on the calling thread. All work is on one
// stream of libtorch's pool, made current for the time of the call, on whatever thread that is.
#include <ATen/Context.h>
#include <ATen/Tensor.h>
#include <ATen/TensorOptions.h>
#include <ATen/core/grad_mode.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/_addmm_activation.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <memory>
#include <string>

namespace {

thread_local std::string message;

template <class Work> int guarded(Work&& work) noexcept {
  try {
    work();
    return 0;
  } catch (const c10::Error& error) {
    message = error.what_without_backtrace();
  } catch (const std::exception& error) {
    message = error.what();
  } catch (...) {
    message = "an exception of an unknown kind";
  }
  return 1;
}

}  // namespace

struct FirstlightTorch {
  c10::cuda::CUDAStream stream;
  // All graphs share it: they never run at the same time.
  at::cuda::MempoolId_t pool;
};

struct FirstlightGraph {
  at::cuda::CUDAGraph graph;
};

// src/torch.rs has the same.
struct FirstlightProduct {
  void* out;         // [rows][outputs]
  const void* input; // [rows][inputs]
  const void* weight;// [outputs][inputs]
  const void* bias;  // [outputs] or null
  int64_t rows, outputs, inputs;
  int32_t f16;       // else bf16
  int32_t wide_out;  // out is of 32-bit floats; no bias then
  int32_t gelu_tanh; // out is the GELU of it; only with a bias
  int32_t reserved;
};
static_assert(sizeof(FirstlightProduct) == 72, "src/torch.rs");

extern "C" {

const char* firstlight_error() { return message.c_str(); }

int firstlight_torch_open(int device, FirstlightTorch** opened, void** stream) {
  return guarded([&] {
    // Tensors over memory that is there already do not set up libtorch's own allocator.
    at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
    // Partial sums stay in 32 bits, as everywhere else.
    at::globalContext().setAllowBF16ReductionCuBLAS(false);
    at::globalContext().setAllowFP16ReductionCuBLAS(false);
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(device));
    auto made = std::make_unique<FirstlightTorch>(FirstlightTorch{
        c10::cuda::getStreamFromPool(/*isHighPriority=*/false, static_cast<c10::DeviceIndex>(device)),
        at::cuda::graph_pool_handle()});
    *stream = made->stream.stream();
    *opened = made.release();
  });
}

void firstlight_torch_close(FirstlightTorch* torch) { delete torch; }

int firstlight_multiply(FirstlightTorch* torch, const FirstlightProduct* product) {
  return guarded([&] {
    const FirstlightProduct& p = *product;
    c10::cuda::CUDAStreamGuard on(torch->stream);
    at::NoGradGuard no_grad;
    const c10::Device device = torch->stream.device();
    const auto narrow = at::TensorOptions().device(device).dtype(p.f16 ? at::kHalf : at::kBFloat16);
    // The device is given, so that nobody asks the driver whose pointer it is.
    const auto tensor = [&](const void* at, at::IntArrayRef sizes, const at::TensorOptions& options) {
      return at::for_blob(const_cast<void*>(at), sizes).options(options).target_device(device).make_tensor();
    };
    const at::Tensor input = tensor(p.input, {p.rows, p.inputs}, narrow);
    const at::Tensor weight = tensor(p.weight, {p.outputs, p.inputs}, narrow).t();
    TORCH_CHECK(p.bias || !p.gelu_tanh, "an activation without a bias");
    if (p.wide_out) {
      TORCH_CHECK(!p.bias, "a bias with a wide output");
      at::Tensor out = tensor(p.out, {p.rows, p.outputs}, narrow.dtype(at::kFloat));
      at::mm_out(out, input, weight, at::kFloat);
    } else if (p.bias) {
      at::Tensor out = tensor(p.out, {p.rows, p.outputs}, narrow);
      const at::Tensor bias = tensor(p.bias, {p.outputs}, narrow);
      if (p.gelu_tanh) {
        // Part of the multiplication in cuBLASLt; where libtorch does not take that, a kernel of the same form behind it.
        // (On a CPU the operator has the exact form. Nothing here is on a CPU.)
        at::_addmm_activation_out(out, bias, input, weight, 1, 1, /*use_gelu=*/true);
      } else {
        at::addmm_out(out, bias, input, weight);
      }
    } else {
      at::Tensor out = tensor(p.out, {p.rows, p.outputs}, narrow);
      at::mm_out(out, input, weight);
    }
  });
}

int firstlight_graph_begin(FirstlightTorch* torch, FirstlightGraph** begun) {
  return guarded([&] {
    c10::cuda::CUDAStreamGuard on(torch->stream);
    auto graph = std::make_unique<FirstlightGraph>();
    // Other threads may go on calling the driver.
    graph->graph.capture_begin(torch->pool, cudaStreamCaptureModeThreadLocal);
    *begun = graph.release();
  });
}

// Ends the recording; `graph` is to be freed even when that fails.
int firstlight_graph_end(FirstlightTorch* torch, FirstlightGraph* graph) {
  return guarded([&] {
    c10::cuda::CUDAStreamGuard on(torch->stream);
    graph->graph.capture_end();
  });
}

int firstlight_graph_replay(FirstlightTorch* torch, FirstlightGraph* graph) {
  return guarded([&] {
    c10::cuda::CUDAStreamGuard on(torch->stream);
    graph->graph.replay();
  });
}

void firstlight_graph_free(FirstlightGraph* graph) { delete graph; }

}  // extern "C"
