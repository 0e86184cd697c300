// What a repository of the hub holds, and which of its files a model needs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace onw {

struct HubFile {
  std::string name;
  int64_t bytes = -1;    // -1: not said
  std::string sha256;    // of the content, where the hub keeps it outside git; lower-case hex
  std::string git_sha1;  // of git's blob ("blob <size>\0" and the content), for the other files
};

struct HubListing {
  std::string repository;
  std::string revision;  // the commit
  std::string licence;   // as the publisher names it; may be empty
  std::vector<HubFile> files;
};

// Reads the hub's answer to /api/models/ID/revision/REV?blobs=true. Every file name is checked: one that leads out of
// the folder refuses the whole repository. Errors: bad_format.
Result<HubListing> parse_listing(std::string_view json);

// The files to take: `only` where it is given, else configuration, tokenizer and templates with the safetensors
// weights, or the one GGUF file. Of sharded weights only the index is in it: see choose_shards. Errors: not_found,
// invalid_argument (several models: says which), unsupported (no weights that onw reads).
Result<std::vector<HubFile>> choose_files(const HubListing& listing, std::string_view only);

inline constexpr std::string_view kShardIndex = "model.safetensors.index.json";

// The shards that the text of an index names, and no other. Errors: bad_format, not_found.
Result<std::vector<HubFile>> choose_shards(const HubListing& listing, std::string_view index);

}  // namespace onw
