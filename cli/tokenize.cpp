// onw tokenize: text on stdin to tokens, or back.
#include "cli/commands.h"
#include "cli/model.h"
#include "cli/output.h"
#include "text/commands.h"

namespace onw::cli {

Result<void> run_tokenize(const Args& args) {
  const auto folder = locate_tokenizer(args.positional(0));
  RETURN_IF_ERROR(folder);
  const auto tokenizer = Tokenizer::open(folder->string());
  RETURN_IF_ERROR(tokenizer);
  const auto input = read_input(kMaxInputBytes);
  RETURN_IF_ERROR(input);
  const TokenizeOptions options{.json = args.has("--json"),
                                .bos = args.has("--bos"),
                                .special = args.has("--special"),
                                .decode = args.has("--decode")};
  const auto output = tokenize_command(*tokenizer, options, *input);
  RETURN_IF_ERROR(output);
  return write_output(*output);
}

}  // namespace onw::cli
