// A model of clicks: numbers go through the bottom MLP, categories through embedding tables; the
// dot products of all pairs of these vectors, and the vector of the numbers, go through the top
// MLP (Naumov et al. 2019, "Deep Learning Recommendation Model for Personalization and
// Recommendation Systems", arXiv 1906.00091, section 2 and figure 1).
//
// docs/models.md has the PyTorch module with the same state_dict. With D the embedding_dim, its
// layers are
//   embeddings.N [rows, D], one for each categorical feature,
//   bottom.N: Linear with ReLU, the last one to D,
//   top.N: Linear with ReLU, the last one to the classes, without it.
// The paper has one output with a sigmoid. Here it has a logit for each class, and the loss is the
// cross-entropy of all families: for two classes their difference is the logit of the paper.
#pragma once
#include <trireme/models/family.h>
#include <trireme/plan/table_plan.h>
#include <cstdint>
#include <memory>
#include <vector>

namespace at {
class Tensor;
}
namespace trireme {
class RowSource;
}

namespace trireme::models {

Family dlrm_family();  // No torch: dlrm_family.cc.

// The embedding tables as servers have them: "embeddings.N". With `unbounded` each category has a
// row of its own, and model.rows has no effect. No torch.
std::vector<plan::TableSpec> tables_of_dlrm(const ModelOptions& options, const InputSpec& input,
                                            bool unbounded);

// Builds the module. `options` must come from resolve(), and fit `input`. Data, float [batch,
// ...], and the named tensor "categories", int64 [batch, categories] of any values, give logits
// [batch, classes].
Model make_dlrm(const ModelOptions& options, const InputSpec& input);
// The same with the embedding tables on servers, which have tables_of_dlrm(). The module has no
// embeddings then; the servers train them. Their rows begin with the values of the other model.
Model make_dlrm(const ModelOptions& options, const InputSpec& input,
                const std::shared_ptr<RowSource>& tables);

// The rows of categories, int64 [batch, features] -> the same shape: mix64(feature, category)
// modulo `rows`, or all 64 bits if `rows` is 0. So equal categories of two features are two
// things.
at::Tensor rows_of_categories(const at::Tensor& categories, int64_t rows);

}  // namespace trireme::models
