#include "models/config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "base/trig.h"
#include "graph/json.h"

namespace onw {

Config::Config(const Json& config) : config_(std::make_shared<Json>(config)), fault_(std::make_shared<Result<void>>()) {
  const Json* text = object("text_config");
  if (text == nullptr) return;
  Json inner = *text;
  for (const auto& [key, value] : config.items())  // what only the outer object says (tie_word_embeddings, eos ids)
    if (!inner.contains(key) && key != "text_config" && key != "vision_config" && key != "audio_config")
      inner[key] = value;
  *config_ = std::move(inner);
}

Result<void> Config::fault() const { return *fault_; }

Config Config::with(Json fields) const {
  Config other = *this;
  other.config_ = std::make_shared<Json>(std::move(fields));
  return other;
}

const Json* Config::find(std::string_view key) const {
  if (!config_->is_object()) return nullptr;
  const auto found = config_->find(key);
  return found == config_->end() || found->is_null() ? nullptr : &*found;
}

const Json* Config::object(std::string_view key) const {
  const Json* v = find(key);
  if (v == nullptr || v->is_object()) return v;
  note(key, *v, "an object");
  return nullptr;
}

void Config::note(std::string_view key, const Json& found, std::string_view expected) const {
  if (*fault_) *fault_ = wrong_type("config.json", fmt::format("{}{}", inside_, key), found, expected);
}

bool Config::has(std::string_view key) const { return find(key) != nullptr; }

Result<int64_t> Config::dimension(std::string_view key) const {
  const Json* v = find(key);
  if (v == nullptr) return error(Code::bad_format, "config.json: '{}' is missing", key);
  const auto n = find_int(*config_, key);
  if (!n || *n <= 0 || *n > INT32_MAX) return wrong_type("config.json", key, *v, "a whole number from 1 to 2^31 - 1");
  return *n;
}

int64_t Config::integer(std::string_view key, int64_t otherwise) const {
  const Json* v = find(key);
  if (v == nullptr) return otherwise;
  if (const auto n = find_int(*config_, key)) return *n;
  note(key, *v, "a whole number");
  return otherwise;
}

double Config::number(std::string_view key, double otherwise) const {
  const Json* v = find(key);
  if (v == nullptr) return otherwise;
  if (v->is_number() && std::isfinite(v->get<double>())) return v->get<double>();
  note(key, *v, "a number");
  return otherwise;
}

bool Config::boolean(std::string_view key, bool otherwise) const {
  const Json* v = find(key);
  if (v == nullptr) return otherwise;
  if (v->is_boolean()) return v->get<bool>();
  note(key, *v, "true or false");
  return otherwise;
}

std::string Config::text(std::string_view key, std::string_view otherwise) const {
  const Json* v = find(key);
  if (v == nullptr) return std::string(otherwise);
  if (v->is_string()) return v->get<std::string>();
  note(key, *v, "a text");
  return std::string(otherwise);
}

std::vector<std::string> Config::strings(std::string_view key) const {
  const Json* v = find(key);
  if (v == nullptr) return {};
  const auto is_string = [](const Json& item) { return item.is_string(); };
  if (v->is_array() && std::ranges::all_of(*v, is_string)) return v->get<std::vector<std::string>>();
  note(key, *v, "a list of texts");
  return {};
}

std::vector<int64_t> Config::integers(std::string_view key) const {
  const Json* v = find(key);
  if (v == nullptr) return {};
  const auto is_whole = [](const Json& item) { return item.is_number_integer(); };
  if (v->is_array() && std::ranges::all_of(*v, is_whole)) return v->get<std::vector<int64_t>>();
  note(key, *v, "a list of whole numbers");
  return {};
}

// Whatever the dialect, as one flat object.
Config Config::rope_parameters(std::string_view kind, double theta) const {
  Config part = *this;
  std::string_view name = "rope_parameters";
  const Json* all = object(name);
  if (all == nullptr) all = object(name = "rope_scaling");
  part.inside_ = fmt::format("{}.", name);
  Json p = all == nullptr ? Json::object() : *all;
  if (!kind.empty() && name == "rope_parameters" && p.contains(kind) && p[std::string(kind)].is_object()) {
    part.inside_ += fmt::format("{}.", kind);
    p = Json(p[std::string(kind)]);
  }
  const auto fill = [&p](const char* key, Json value) {
    if (!p.contains(key) || p[key].is_null()) p[key] = std::move(value);
  };
  fill("rope_type", p.contains("type") ? p["type"] : Json());
  fill("rope_theta", number("rope_theta", theta));
  fill("original_max_position_embeddings",
       number("original_max_position_embeddings", number("max_position_embeddings", 0)));
  part.config_ = std::make_shared<Json>(std::move(p));
  return part;
}

namespace {

// Llama 3.1: long wavelengths divided by `factor`, short ones kept, a ramp between (MODELS: 1.5).
void scale_llama3(const Config& p, std::vector<double>& inv_freq) {
  const double factor = p.number("factor", 8), original = p.number("original_max_position_embeddings", 8192);
  const double low = p.number("low_freq_factor", 1), high = p.number("high_freq_factor", 4);
  for (double& f : inv_freq) {
    const double wavelength = 2 * std::numbers::pi / f;
    if (wavelength < original / high) continue;
    if (wavelength > original / low) {
      f /= factor;
    } else {
      const double smooth = (original / wavelength - low) / (high - low);
      f = (1 - smooth) * f / factor + smooth * f;
    }
  }
}

// YaRN (arXiv 2309.00071): fast frequencies kept, slow ones divided, a linear ramp between; cos and sin are scaled.
void scale_yarn(const Config& p, int64_t r, RopeTable& table) {
  const double factor = p.number("factor", 1), theta = p.number("rope_theta", 10000);
  const double original = p.number("original_max_position_embeddings", 4096);
  const auto corrected = [&](double rotations) {
    return static_cast<double>(r) * natural_log(original / (2 * std::numbers::pi * rotations)) /
           (2 * natural_log(theta));
  };
  double low = corrected(p.number("beta_fast", 32)), high = corrected(p.number("beta_slow", 1));
  if (p.boolean("truncate", true)) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(r) - 1);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < table.inv_freq.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    table.inv_freq[i] = table.inv_freq[i] / factor * ramp + table.inv_freq[i] * (1 - ramp);
  }
  const auto magnitude = [](double s, double m) { return s > 1 ? 0.1 * m * natural_log(s) + 1 : 1.0; };
  const double mscale = p.number("mscale", 0), mscale_all = p.number("mscale_all_dim", 0);
  table.scaling =
      mscale != 0 && mscale_all != 0 ? magnitude(factor, mscale) / magnitude(factor, mscale_all) : magnitude(factor, 1);
  table.scaling = p.number("attention_factor", table.scaling);
}

Result<void> scale_by_factors(const Json& p, std::vector<double>& inv_freq) {
  if (!p.contains("factors") || !p["factors"].is_array() || p["factors"].size() != inv_freq.size())
    return error(Code::bad_format, "rope_parameters: 'factors' must hold {} numbers", inv_freq.size());
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    const Json& f = p["factors"][i];
    if (!f.is_number() || !(f.get<double>() > 0))
      return error(Code::bad_format, "rope_parameters: factor {} is not positive", i);
    inv_freq[i] /= f.get<double>();
  }
  return {};
}

}  // namespace

Result<RopeTable> Config::rope(std::string_view name, std::string_view kind, int64_t r, double theta) const {
  const Config p = rope_parameters(kind, theta);
  const std::string type = p.text("rope_type", "default");
  const double base = p.number("rope_theta", theta), factor = p.number("factor", 1);
  if (r <= 0 || r % 2 != 0) return error(Code::bad_format, "config.json: rotary width {} is not even", r);
  if (!(base > 0) || !(factor > 0))
    return error(Code::bad_format, "config.json: rope theta {} or factor {} is not positive", base, factor);
  RopeTable table{std::string(name), {}, 1};
  for (int64_t i = 0; i < r / 2; ++i)
    table.inv_freq.push_back(power(base, -2.0 * static_cast<double>(i) / static_cast<double>(r)));
  if (type == "linear") {
    for (double& f : table.inv_freq) f /= factor;
  } else if (type == "llama3") {
    scale_llama3(p, table.inv_freq);
  } else if (type == "yarn") {
    scale_yarn(p, r, table);
  } else if (type == "proportional") {
    const auto live = static_cast<size_t>(p.number("partial_rotary_factor", 1) * static_cast<double>(r) / 2);
    for (size_t i = 0; i < table.inv_freq.size(); ++i) table.inv_freq[i] = i < live ? table.inv_freq[i] / factor : 0;
  } else if (type == "factors") {
    RETURN_IF_ERROR(scale_by_factors(p.json(), table.inv_freq));
  } else if (type != "default") {
    return error(Code::unsupported,
                 "config.json: rope_type '{}' is not supported (default, linear, llama3, yarn, proportional)", type);
  }
  for (const double f : table.inv_freq)
    if (!(f >= 0 && f <= 1e6))
      return error(Code::bad_format, "config.json: rope_type '{}' with these parameters gives a frequency of {}", type,
                   f);
  return table;
}

}  // namespace onw
