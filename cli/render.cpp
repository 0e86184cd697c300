// onw render: the prompt that a request becomes.
#include "cli/commands.h"
#include "cli/model.h"
#include "cli/output.h"
#include "cli/token_ids.h"
#include "text/commands.h"

namespace onw::cli {
namespace {

Result<void> render(const ChatTemplate& chat_template, const Tokenizer* tokenizer) {
  const auto input = read_input(kMaxInputBytes);
  RETURN_IF_ERROR(input);
  const auto output = render_command(chat_template, tokenizer, *input);
  RETURN_IF_ERROR(output);
  return write_output(*output);
}

}  // namespace

Result<void> run_render(const Args& args) {
  if (args.has("--template") == !args.positional(0).empty())
    return error(Code::usage, "give a MODEL or --template FILE, one of them");
  if (args.has("--template")) {
    const auto source = read_text(args.text("--template"));
    RETURN_IF_ERROR(source);
    const auto chat_template = ChatTemplate::from_source(*source);
    RETURN_IF_ERROR(chat_template);
    return render(*chat_template, nullptr);
  }
  const auto folder = locate_tokenizer(args.positional(0));
  RETURN_IF_ERROR(folder);
  const auto tokenizer = Tokenizer::open(folder->string());
  RETURN_IF_ERROR(tokenizer);
  const auto chat_template = ChatTemplate::open(folder->string());
  RETURN_IF_ERROR(chat_template);
  return render(*chat_template, &*tokenizer);
}

}  // namespace onw::cli
