// The server of a host: the process that `data.service: host` starts. It serves the processes of
// one user that connect to the socket it inherited, and ends when the last of them is gone.
#pragma once
#include <trireme/base/deadline.h>
#include <trireme/base/descriptor.h>
#include <trireme/data/service/sample_server.h>
#include <functional>
#include <vector>

namespace trireme::data {

// Makes the parts, and sets the threads and bytes of the server.
using MakeParts = std::function<std::vector<ServedPart>(SampleServerOptions&)>;

// Greets clients until none is left for `linger`, or `stops` returns true. `make_parts` may take
// long: until it returns, clients are told that the server is opening. If it throws, they get its
// message and the call returns.
void run_host_server(Descriptor listener, const MakeParts& make_parts,
                     const std::function<bool()>& stops, Milliseconds linger);

}  // namespace trireme::data
