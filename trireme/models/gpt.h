// A decoder-only transformer with learned positions, and pre-norm blocks with causal attention and
// GELU. Its output head has weights of its own, or with model.tied those of the token embedding.
//
// docs/models.md has the PyTorch module with the same state_dict. With C the width, its layers are
//   token_embedding [vocabulary, C], position_embedding [context, C],
//   blocks.N: attention_norm, qkv [3C, C] (queries, keys, values, each split into heads),
//             attention_out [C, C], mlp_norm, mlp_in [4C, C], mlp_out [C, 4C],
//   final_norm, head [vocabulary, C] without bias (none with model.tied).
// The architecture is that of Radford et al., "Language Models are Unsupervised Multitask
// Learners" (2019), section 2.3, whose four models are the presets gpt2 to gpt2-xl. Their GELU is
// the exact one, where OpenAI's code has its approximation by tanh.
#pragma once
#include <trireme/models/family.h>

namespace trireme::models {

Family gpt_family();  // No torch: gpt_family.cc.

// Builds the module. `options` must come from resolve(), and fit `input`. Tokens, int64 [batch,
// tokens] with tokens <= context, give logits [batch * tokens, vocabulary]. For packs of documents
// it also takes the batch's "positions" and "documents" (data/packed_source.h), so that a document
// gives what it gives alone. With model.tied the
// blocks "embedding" and "head" both have the token embedding, and both embeddings start from a
// normal distribution of standard deviation 0.02 (Radford et al. 2018, section 4.1): torch's 1
// would make the first logits too large.
Model make_gpt(const ModelOptions& options, const InputSpec& input);

}  // namespace trireme::models
