// The child of tests: what onw does after the word openvino-compile.
#include <cstdio>

#include "base/process.h"
#include "targets/openvino/compile_child.h"

int main(int argc, char** argv) {
  onw::prepare_process();
  if (argc != 2) return 2;
  return std::fputs(onw::openvino::compile_ordered(argv[1]).c_str(), stdout) < 0 ? 1 : 0;
}
