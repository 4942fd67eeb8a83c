// The data service of a run: its secret, the process that serves a host, and the checks that need
// no torch.
#pragma once
#include <trireme/data/dataset.h>
#include <trireme/run/config.h>
#include <string>

namespace trireme {

// Lets sources that are made from now on ask the service of `config`.
void use_data_service(const Config& config);

// The secret of `trireme data serve`: TRIREME_DATA_TOKEN, the text in TRIREME_DATA_TOKEN_FILE, or
// else the job token. Throws Error(invalid_argument) if there is none, or if it is too short.
std::string data_token();

// Asks each server of data.service: HOST:PORT whether it makes the samples of `data`. Throws
// Error(timeout | peer_lost) if none can be reached, Error(invalid_argument) if one has another
// secret or makes other samples. For `host` it only throws Error(unsupported) for samples that no
// service makes.
void check_data_service(const Config& config, const data::Dataset& data);

// The service in a line for `trireme plan`; empty if there is none.
std::string describe_data_service(const Config& config);

}  // namespace trireme
