// Mistakes in the loops of written_loops.cc, on one rank or on all. `loop_mistakes MISTAKE` ends
// by the error that names it; test_loop_mistakes.py runs it with 1, 2 and 3 processes.
#include "loop_parts.h"

int main(int argc, char** argv) {
  using namespace loops;
  return run_named(argc, argv,
                   {mistakes_in_steps(), mistakes_in_values(), mistakes_between_ranks()});
}
