// What a program sets right before anything else.
#pragma once

namespace onw {

// Standard input, output and error exist afterwards: where one was closed it is /dev/null, so that no file or socket
// opened later takes its number. A write beyond a limit on file sizes becomes an error instead of the end.
void prepare_process();

}  // namespace onw
