#include "models/config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "base/trig.h"

namespace onw {

Config::Config(const Json& config) : config_(std::make_shared<Json>(config)) {
  if (config.is_object() && config.contains("text_config") && config["text_config"].is_object()) {
    Json& inner = *config_;
    inner = config["text_config"];
    for (const auto& [key, value] : config.items())  // what only the outer object says (tie_word_embeddings, eos ids)
      if (!inner.contains(key) && key != "text_config" && key != "vision_config" && key != "audio_config")
        inner[key] = value;
  }
}

const Json* Config::find(std::string_view key) const {
  if (!config_->is_object()) return nullptr;
  const auto found = config_->find(key);
  return found == config_->end() || found->is_null() ? nullptr : &*found;
}

bool Config::has(std::string_view key) const { return find(key) != nullptr; }

Result<int64_t> Config::dimension(std::string_view key) const {
  const Json* v = find(key);
  if (v == nullptr) return error(Code::bad_format, "config.json: '{}' is missing", key);
  if (!v->is_number_integer() || v->get<int64_t>() <= 0 || v->get<int64_t>() > INT32_MAX)
    return error(Code::bad_format, "config.json: '{}' is {}, a positive integer expected", key,
                 v->dump().substr(0, 40));
  return v->get<int64_t>();
}

int64_t Config::integer(std::string_view key, int64_t otherwise) const {
  const Json* v = find(key);
  return v != nullptr && v->is_number_integer() ? v->get<int64_t>() : otherwise;
}

double Config::number(std::string_view key, double otherwise) const {
  const Json* v = find(key);
  return v != nullptr && v->is_number() ? v->get<double>() : otherwise;
}

bool Config::boolean(std::string_view key, bool otherwise) const {
  const Json* v = find(key);
  return v != nullptr && v->is_boolean() ? v->get<bool>() : otherwise;
}

std::string Config::text(std::string_view key, std::string_view otherwise) const {
  const Json* v = find(key);
  return v != nullptr && v->is_string() ? v->get<std::string>() : std::string(otherwise);
}

std::vector<std::string> Config::strings(std::string_view key) const {
  const Json* v = find(key);
  std::vector<std::string> list;
  if (v == nullptr || !v->is_array()) return list;
  for (const Json& item : *v)
    if (item.is_string()) list.push_back(item.get<std::string>());
  return list;
}

namespace {

// The parameters of one layer kind, whatever the dialect, as one flat object with rope_type and rope_theta.
Json rope_parameters(const Config& c, std::string_view kind, double theta) {
  Json p = Json::object();
  if (const Json& all = c.json(); all.contains("rope_parameters") && all["rope_parameters"].is_object()) {
    p = all["rope_parameters"];
    if (!kind.empty() && p.contains(kind) && p[std::string(kind)].is_object()) p = Json(p[std::string(kind)]);
  } else if (all.contains("rope_scaling") && all["rope_scaling"].is_object()) {
    p = all["rope_scaling"];
  }
  if (!p.contains("rope_type") && p.contains("type")) p["rope_type"] = p["type"];
  if (!p.contains("rope_type") || !p["rope_type"].is_string()) p["rope_type"] = "default";
  if (!p.contains("rope_theta") || !p["rope_theta"].is_number()) p["rope_theta"] = c.number("rope_theta", theta);
  if (!p.contains("original_max_position_embeddings"))
    p["original_max_position_embeddings"] =
        c.number("original_max_position_embeddings", c.number("max_position_embeddings", 0));
  return p;
}

double parameter(const Json& p, const char* key, double otherwise) {
  return p.contains(key) && p[key].is_number() ? p[key].get<double>() : otherwise;
}

// Llama 3.1: long wavelengths divided by `factor`, short ones kept, a ramp between (MODELS: 1.5).
void scale_llama3(const Json& p, std::vector<double>& inv_freq) {
  const double factor = parameter(p, "factor", 8), original = parameter(p, "original_max_position_embeddings", 8192);
  const double low = parameter(p, "low_freq_factor", 1), high = parameter(p, "high_freq_factor", 4);
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
void scale_yarn(const Json& p, int64_t r, RopeTable& table) {
  const double factor = parameter(p, "factor", 1), theta = parameter(p, "rope_theta", 10000);
  const double original = parameter(p, "original_max_position_embeddings", 4096);
  const auto corrected = [&](double rotations) {
    return static_cast<double>(r) * natural_log(original / (2 * std::numbers::pi * rotations)) /
           (2 * natural_log(theta));
  };
  double low = corrected(parameter(p, "beta_fast", 32)), high = corrected(parameter(p, "beta_slow", 1));
  if (!p.contains("truncate") || !p["truncate"].is_boolean() || p["truncate"].get<bool>()) {
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
  const double mscale = parameter(p, "mscale", 0), mscale_all = parameter(p, "mscale_all_dim", 0);
  table.scaling =
      mscale != 0 && mscale_all != 0 ? magnitude(factor, mscale) / magnitude(factor, mscale_all) : magnitude(factor, 1);
  table.scaling = parameter(p, "attention_factor", table.scaling);
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
  const Json p = rope_parameters(*this, kind, theta);
  const auto type = p["rope_type"].get<std::string>();
  const double base = p["rope_theta"].get<double>(), factor = parameter(p, "factor", 1);
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
    const auto live = static_cast<size_t>(parameter(p, "partial_rotary_factor", 1) * static_cast<double>(r) / 2);
    for (size_t i = 0; i < table.inv_freq.size(); ++i) table.inv_freq[i] = i < live ? table.inv_freq[i] / factor : 0;
  } else if (type == "factors") {
    RETURN_IF_ERROR(scale_by_factors(p, table.inv_freq));
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
