// The parts of a data set of records, as a worker has them from a service, and as a server makes
// them.
#pragma once
#include <trireme/data/data_options.h>
#include <trireme/data/dataset.h>
#include <trireme/data/service/sample_server.h>
#include <trireme/data/source_makers.h>
#include <vector>

namespace trireme::data {

// The sources of a worker, which asks the service of `options`. Throws as SampleService's
// constructor does.
Sources served_sources(const Dataset& data, const DataOptions& options);

// The same for the samples of a mixture, in front of the stages that mix those of a batch.
Sources served_mixture(const Dataset& data, Sources samples);

// The parts that a server makes. Throws Error(unsupported) for a data set that is not one of
// records or a mixture, and as facts_of_parts() does.
std::vector<ServedPart> parts_to_serve(const Dataset& data);

// The bytes of made samples that a server keeps by data.service_bytes.
int64_t bytes_to_keep(const DataOptions& options);
// The threads of a server by data.service_threads.
int threads_of_server(const DataOptions& options);

}  // namespace trireme::data
