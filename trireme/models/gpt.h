// A decoder-only transformer with learned positions, pre-norm blocks with causal attention and
// GELU, and an output head of its own.
//
// docs/models.md has the PyTorch module with the same state_dict. With C the width, its layers are
//   token_embedding [vocabulary, C], position_embedding [context, C],
//   blocks.N: attention_norm, qkv [3C, C] (queries, keys, values, each split into heads),
//             attention_out [C, C], mlp_norm, mlp_in [4C, C], mlp_out [C, 4C],
//   final_norm, head [vocabulary, C] without bias.
// The architecture is that of Radford et al., "Language Models are Unsupervised Multitask
// Learners" (2019), section 2.3, but its head is untied.
#pragma once
#include <trireme/models/family.h>

namespace trireme::models {

Family gpt_family();  // No torch: gpt_family.cc.

// Builds the module. `options` must come from resolve(), and fit `input`. Tokens, int64 [batch,
// tokens] with tokens <= context, give logits [batch * tokens, vocabulary].
Model make_gpt(const ModelOptions& options, const InputSpec& input);

}  // namespace trireme::models
