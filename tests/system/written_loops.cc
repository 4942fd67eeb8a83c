// Training loops as people write them for one process, made data parallel by Distributed and
// make_data_loader. `written_loops LOOP[+LOOP...]` prints facts as lines of JSON;
// test_written_loops.py runs it with 1, 2 and 3 processes, and test_elastic_loops.py with some that
// are lost.
#include "loop_parts.h"

int main(int argc, char** argv) {
  using namespace loops;
  return run_named(argc, argv, {written_steps(), written_data(), written_elastic()});
}
