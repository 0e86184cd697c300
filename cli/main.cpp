#include "base/process.h"
#include "cli/commands.h"

int main(int argc, char** argv) {
  onw::prepare_process();
  return onw::cli::run({argv + 1, argv + argc});
}
