// The ways to compile a graph for each kind of device, as data: the first that works is taken, and what was tried is
// not tried again (blob_store.h).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "targets/openvino/runtime.h"

namespace onw::openvino {

struct Route {
  std::string_view name;  // "compiler of the plugin"
  std::span<const std::pair<std::string_view, std::string_view>> properties = {};
  // Further ones of the head alone.
  std::span<const std::pair<std::string_view, std::string_view>> head_properties = {};
  // The compiled graph leaves its weights in our file: kept by the device's plugin (its CACHE_DIR), and loaded with the
  // graph's text beside it. Only for graphs whose constants are worth it, and have no type that plugins keep all the
  // same.
  bool without_weights = false;
};

// Whether a graph is to be tried by the route: its text and what its constants take.
bool suits(const Route& route, std::string_view xml, int64_t constant_bytes);

struct PlatformRoutes {
  std::string_view platform;  // "3720"; "GPU", "CPU": a device that has no generations
  std::span<const Route> routes;
  double seconds = 600;            // for one graph
  int64_t child_bytes = 0;         // that a compiling process needs beside some three times the graph's constants
  bool imports_by_device = false;  // the properties must be set for the device before a graph is imported
  bool stores = true;              // whether serving keeps the compiled graphs
};

// `platform`: a name of the table. A device that it does not have is taken as its newest NPU where it begins with
// "NPU", else as the CPU.
const PlatformRoutes& routes_for(std::string_view platform);

// The properties of a route after those that hold for every graph; a later one of the same name counts.
Properties route_properties(const Route& route, bool is_head, Properties common);

}  // namespace onw::openvino
