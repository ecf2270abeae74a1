// SPDX-License-Identifier: MIT
#include "summary.hpp"

#include <nlohmann/json.hpp>

#include <halfstep/core/error.hpp>

namespace capstone {

namespace core = halfstep::core;

std::string paths_that_ran(const core::Counters& counters) {
  std::string names;
  for (const core::Isa isa : core::all_isas) {
    if (counters.products[static_cast<std::size_t>(isa)] == 0) continue;
    names += (names.empty() ? "" : "+") + std::string(core::to_string(isa));
  }
  return names.empty() ? "none" : names;
}

std::string hash_text(std::uint64_t hash) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text(16, '0');
  for (std::size_t i = 0; i < 16; ++i)
    text[15 - i] = digits[hash >> (4 * i) & 15U];
  return text;
}

std::string data_hash_of(const std::string& json, const std::string& source) {
  try {
    return nlohmann::json::parse(json).value("data_hash", std::string());
  } catch (const nlohmann::json::exception& error) {
    core::fail<halfstep::FileError>("'", source, "' is no summary of a run: ", error.what());
  }
}

namespace {

/// Who did how much, and the bytes that each collective moved on every rank, training and
/// evaluations together; reads and writes are of shared memory.
nlohmann::ordered_json ranks_json(const Options& options, const Trained& trained) {
  nlohmann::ordered_json json;
  json["count"] = options.ranks;
  json["zero"] = options.zero;
  json["transport"] = options.transport;
  json["algorithm"] = options.algorithm;
  json["bucket"] = options.bucket;
  json["tokens"] = trained.rank_tokens;
  if (options.zero == 3) json["gathered_elements"] = trained.gathered;
  for (const auto& [name, ranks] : trained.traffic) {
    auto& one = json["traffic"][name];
    one["calls"] = ranks.front().calls;
    for (const auto& rank : ranks) {
      one["sent"].push_back(rank.traffic.bytes_sent);
      one["read"].push_back(rank.traffic.bytes_read);
      one["written"].push_back(rank.traffic.bytes_written);
      one["staged"].push_back(rank.traffic.bytes_staged);
    }
  }
  return json;
}

}  // namespace

std::string summary_json(const Options& options, const Trained& trained, int threads,
                         int vocabulary, std::uint64_t data_hash, double ngram_bits_per_byte,
                         double floor) {
  nlohmann::ordered_json json;
  json["schema"] = 1;
  json["version"] = HALFSTEP_VERSION;
  json["format"] = options.format;
  json["preset"] = options.preset;
  json["data"] = options.data;
  json["data_hash"] = hash_text(data_hash);
  json["vocabulary"] = vocabulary;
  json["parameters"] = trained.parameters;
  json["iterations"] = trained.iterations;
  json["steps"] = trained.steps;
  json["skipped_steps"] = trained.skipped_steps;
  json["micro_batches"] = trained.micro_batches;
  json["tokens"] = trained.tokens;
  json["seed"] = options.seed;
  json["threads"] = threads;
  json["isa"] = paths_that_ran(trained.counters);
  auto& products = json["products"];
  for (const core::Isa isa : core::all_isas) {
    products[std::string(core::to_string(isa))] =
        trained.counters.products[static_cast<std::size_t>(isa)];
  }
  json["train_flops"] = trained.train_flops;
  json["replayed_ops"] = trained.replayed_ops;
  json["train_loss"] = trained.train_loss;
  json["val_loss"] = trained.evaluation.nats_per_token();
  json["val_standard_error"] = trained.evaluation.standard_error;
  json["val_tokens"] = trained.evaluation.count;
  json["val_perplexity"] = trained.evaluation.perplexity();
  if (trained.evaluation.bytes > 0) json["val_bits_per_byte"] = trained.evaluation.bits_per_byte();
  json["val_accuracy"] = trained.evaluation.accuracy();
  if (options.ema > 0.0) {
    json["average_val_loss"] = trained.average_evaluation.nats_per_token();
    json["average_hash"] = hash_text(trained.average_hash);
  }
  if (ngram_bits_per_byte > 0.0) json["ngram_bits_per_byte"] = ngram_bits_per_byte;
  if (floor > 0.0) json["floor_nats_per_character"] = floor;
  json["loss_scale"] = trained.loss_scale;
  auto& underflow = json["underflow"];  // shares of the last step's non-zero gradients
  underflow["nonzero"] = trained.underflow.nonzero;
  underflow["fp16_at_scale_1"] = trained.underflow.share(trained.underflow.fp16);
  underflow["fp16_at_loss_scale"] = trained.underflow.share(trained.underflow.fp16_scaled);
  underflow["bf16_at_scale_1"] = trained.underflow.share(trained.underflow.bf16);
  if (options.telemetry) {
    json["telemetry"] =
        nlohmann::ordered_json::parse(halfstep::train::metrics_line(trained.telemetry));
    json["shadow"] = nlohmann::ordered_json::parse(halfstep::train::metrics_line(trained.shadow));
  }
  if (!trained.ended_by_scaler.empty()) json["stopped"] = trained.ended_by_scaler;
  json["train_seconds"] = trained.train_seconds;
  json["tokens_per_second"] = trained.tokens_per_second;
  json["ms_per_step_median"] = trained.median_step_seconds * 1e3;
  auto& peak = json["peak_bytes"];
  peak["total"] = trained.peak;
  for (std::size_t c = 0; c < core::categories; ++c) {
    peak[std::string(core::to_string(static_cast<core::Category>(c)))] = trained.at_peak[c];
  }
  if (trained.predicted_peak) json["predicted_peak_bytes"] = *trained.predicted_peak;
  json["resident_growth_bytes"] = trained.resident;
  if (options.ranks > 1) json["ranks"] = ranks_json(options, trained);
  json["weights_hash"] = hash_text(trained.weights_hash);
  return json.dump(2) + "\n";
}

}  // namespace capstone
