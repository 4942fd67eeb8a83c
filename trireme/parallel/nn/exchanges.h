// The operations between the ranks of a tensor axis inside forward and backward. Each is a
// function of autograd: one collective in forward, and the one that undoes it in backward. All are
// COLLECTIVE in both directions. A null group is an axis of one rank: then they return the input.
//
// An activation is in one of three states:
//   whole            the same [..., tokens, width] on every rank; so is its gradient;
//   divided tokens   [..., tokens / ranks, width] on each rank: the part of a sequence-parallel
//                    region. Rank r has block r of the rows as they lie in memory, so for several
//                    samples not the same tokens of each. Only operations on single tokens make
//                    sense there: norm, dropout, sums, activations;
//   divided columns  [..., tokens, part of the width] on each rank.
//
// Sums follow the ranks' order, as Group's collectives do: repeated runs give the same bits.
// Backward of backward works as well.
#pragma once
#include <ATen/core/Tensor.h>
#include <trireme/comm/group.h>
#include <cstdint>
#include <memory>

namespace trireme::nn {

using Ranks = std::shared_ptr<Group>;

// f of Shoeybi et al. 2019, figure 3: a whole input enters a layer with divided columns. Forward
// copies; backward adds up the gradients of all ranks.
at::Tensor enter_columns(const at::Tensor& whole, const Ranks& ranks);
// g: the ranks' terms of a sum become a whole output. Forward adds up; backward copies.
at::Tensor sum_terms(const at::Tensor& terms, const Ranks& ranks);

// g of Korthikanti et al. 2022, figure 6: as enter_columns(), from divided tokens. Forward
// gathers; backward adds up and leaves each rank its tokens.
at::Tensor enter_columns_from_tokens(const at::Tensor& tokens, const Ranks& ranks);
// The other g of that figure: as sum_terms(), with divided tokens as the output. Throws
// Error(invalid_argument) if the tokens do not divide evenly.
at::Tensor sum_terms_to_tokens(const at::Tensor& terms, const Ranks& ranks);

// Between whole and divided tokens. Forward of the first takes this rank's rows, its backward
// gathers; the second one is the reverse. Both throw as sum_terms_to_tokens() does.
at::Tensor divide_tokens(const at::Tensor& whole, const Ranks& ranks);
at::Tensor gather_tokens(const at::Tensor& tokens, const Ranks& ranks);

// Makes an activation with divided columns whole. The ranks have the columns of range_of(columns,
// rank, ranks). Forward gathers; backward takes this rank's columns.
at::Tensor gather_columns(const at::Tensor& part, int64_t columns, const Ranks& ranks);

}  // namespace trireme::nn
