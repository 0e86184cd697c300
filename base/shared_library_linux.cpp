#include <dlfcn.h>

#include "base/shared_library.h"

namespace onw {

Result<SharedLibrary> SharedLibrary::open(const std::filesystem::path& path) {
  SharedLibrary library;
  library.path_ = path;
  library.handle_ = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library.handle_ != nullptr) return library;
  const char* reason = ::dlerror();
  std::error_code failure;
  const bool there = std::filesystem::exists(path, failure);
  return error(there ? Code::unsupported : Code::not_found, "{}: cannot be loaded: {}", path.string(),
               reason == nullptr ? "the system gives no reason" : reason);
}

void* SharedLibrary::symbol(const std::string& name) const { return ::dlsym(handle_, name.c_str()); }

}  // namespace onw
