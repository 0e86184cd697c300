#include "cli/commands.h"

int main(int argc, char** argv) { return onw::cli::run({argv + 1, argv + argc}); }
