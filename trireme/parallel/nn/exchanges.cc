#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <fmt/format.h>
#include <trireme/base/error.h>
#include <trireme/parallel/nn/exchanges.h>
#include <trireme/parallel/nn/parameter_parts.h>
#include <functional>
#include <utility>

namespace trireme::nn {
namespace {

using Move = std::function<at::Tensor(const at::Tensor&)>;

struct Moves : torch::CustomClassHolder {
  Moves(Move in_forward, Move in_backward)
      : forward(std::move(in_forward)), backward(std::move(in_backward)) {}
  Move forward, backward;
};

// The two moves undo each other, so the backward of a backward is the same function again.
class Exchanged : public torch::autograd::Function<Exchanged> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const c10::intrusive_ptr<Moves>& moves) {
    context->saved_data["moves"] = c10::IValue::make_capsule(moves);
    return moves->forward(input);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const auto& moves = static_cast<const Moves&>(*context->saved_data["moves"].toCapsule());
    return {apply(grads[0], c10::make_intrusive<Moves>(moves.backward, moves.forward)), {}};
  }
};

at::Tensor exchanged(const at::Tensor& input, Move forward, Move backward) {
  return Exchanged::apply(input,
                          c10::make_intrusive<Moves>(std::move(forward), std::move(backward)));
}

at::Tensor same(const at::Tensor& tensor) { return tensor; }

Move sum_over(const Ranks& ranks) {
  return [ranks](const at::Tensor& terms) {
    at::Tensor sum = terms.clone(at::MemoryFormat::Contiguous);
    ranks->all_reduce(sum);
    return sum;
  };
}

// [..., tokens, width] with that many tokens.
std::vector<int64_t> with_tokens(const at::Tensor& like, int64_t tokens) {
  std::vector<int64_t> sizes = like.sizes().vec();
  sizes[sizes.size() - 2] = tokens;
  return sizes;
}

int64_t tokens_of_each(const at::Tensor& whole, const Ranks& ranks) {
  if (whole.dim() < 2)
    throw Error(
        ErrorCode::invalid_argument, "parallel",
        fmt::format("a tensor of {} dimensions has no tokens to divide among ranks", whole.dim()),
        "activations of [..., tokens, width]");
  const int64_t tokens = whole.size(-2);
  if (tokens % ranks->size() != 0)
    throw Error(ErrorCode::invalid_argument, "parallel",
                fmt::format("{} tokens cannot be divided evenly among {} ranks of the tensor axis",
                            tokens, ranks->size()),
                fmt::format("samples of {} tokens", (tokens / ranks->size() + 1) * ranks->size()));
  return tokens / ranks->size();
}

Move sum_to_tokens_over(const Ranks& ranks) {
  return [ranks](const at::Tensor& terms) {
    at::Tensor mine = at::empty(with_tokens(terms, tokens_of_each(terms, ranks)), terms.options());
    ranks->reduce_scatter(terms.contiguous(), mine);
    return mine;
  };
}

Move gather_tokens_over(const Ranks& ranks) {
  return [ranks](const at::Tensor& tokens) {
    at::Tensor whole =
        at::empty(with_tokens(tokens, tokens.size(-2) * ranks->size()), tokens.options());
    ranks->all_gather(tokens.contiguous(), whole);
    return whole;
  };
}

Move own_tokens(const Ranks& ranks) {
  return [ranks](const at::Tensor& whole) {
    const std::vector<int64_t> sizes = with_tokens(whole, tokens_of_each(whole, ranks));
    const at::Tensor flat = whole.contiguous().view({-1});
    const int64_t elements = flat.numel() / ranks->size();
    return flat.narrow(0, elements * ranks->rank(), elements).clone().view(sizes);
  };
}

// Blocks of a gather are equally wide; the columns that a rank does not have are left out.
Move gather_columns_over(const Ranks& ranks, int64_t columns) {
  return [ranks, columns](const at::Tensor& part) {
    const int size = ranks->size();
    const int64_t width = part.size(-1), widest = (columns + size - 1) / size;
    const at::Tensor rows = part.reshape({part.numel() / width, width});
    at::Tensor block = rows.contiguous();
    if (width < widest) {
      block = at::zeros({rows.size(0), widest}, rows.options());
      block.narrow(1, 0, width).copy_(rows);
    }
    const at::Tensor all = at::empty({size, rows.size(0), widest}, rows.options());
    ranks->all_gather(block, all);
    std::vector<at::Tensor> parts;
    for (int rank = 0; rank < size; ++rank) {
      const auto [first, last] = range_of(columns, rank, size);
      parts.push_back(all[rank].narrow(1, 0, last - first));
    }
    std::vector<int64_t> sizes = part.sizes().vec();
    sizes.back() = columns;
    return at::cat(parts, 1).view(sizes);
  };
}

Move own_columns(const Ranks& ranks, int64_t columns) {
  return [ranks, columns](const at::Tensor& whole) {
    const auto [first, last] = range_of(columns, ranks->rank(), ranks->size());
    return whole.narrow(-1, first, last - first).clone(at::MemoryFormat::Contiguous);
  };
}

}  // namespace

at::Tensor enter_columns(const at::Tensor& whole, const Ranks& ranks) {
  return ranks ? exchanged(whole, same, sum_over(ranks)) : whole;
}
at::Tensor sum_terms(const at::Tensor& terms, const Ranks& ranks) {
  return ranks ? exchanged(terms, sum_over(ranks), same) : terms;
}
at::Tensor enter_columns_from_tokens(const at::Tensor& tokens, const Ranks& ranks) {
  return ranks ? exchanged(tokens, gather_tokens_over(ranks), sum_to_tokens_over(ranks)) : tokens;
}
at::Tensor sum_terms_to_tokens(const at::Tensor& terms, const Ranks& ranks) {
  return ranks ? exchanged(terms, sum_to_tokens_over(ranks), gather_tokens_over(ranks)) : terms;
}
at::Tensor divide_tokens(const at::Tensor& whole, const Ranks& ranks) {
  return ranks ? exchanged(whole, own_tokens(ranks), gather_tokens_over(ranks)) : whole;
}
at::Tensor gather_tokens(const at::Tensor& tokens, const Ranks& ranks) {
  return ranks ? exchanged(tokens, gather_tokens_over(ranks), own_tokens(ranks)) : tokens;
}
at::Tensor gather_columns(const at::Tensor& part, int64_t columns, const Ranks& ranks) {
  return ranks ? exchanged(part, gather_columns_over(ranks, columns), own_columns(ranks, columns))
               : part;
}

}  // namespace trireme::nn
