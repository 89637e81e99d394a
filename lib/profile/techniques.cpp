#include "lib/profile/techniques.h"

#include "lib/models/stored_quantization.h"

namespace vlmtune {
namespace {

bool trains(Command command) { return command != Command::kInfer; }

constexpr Technique kTechniques[] = {
    {"memory.checkpointing: every:2",
     {"/memory/checkpointing", nullptr},
     true,
     [](const Recipe& r, Command) { return r.memory.checkpointing == "every:2"; },
     [](const Recipe&, Command c) { return trains(c); },
     [](Recipe& r) { r.memory.checkpointing = "every:2"; },
     [](Recipe& r) { r.memory.checkpointing = "none"; }},
    {"memory.checkpointing: selective",
     {"/memory/checkpointing", nullptr},
     true,
     [](const Recipe& r, Command) { return r.memory.checkpointing == "selective"; },
     [](const Recipe&, Command c) { return trains(c); },
     [](Recipe& r) { r.memory.checkpointing = "selective"; },
     [](Recipe& r) { r.memory.checkpointing = "none"; }},
    {"memory.checkpointing: full",
     {"/memory/checkpointing", nullptr},
     true,
     [](const Recipe& r, Command) { return r.memory.checkpointing == "full"; },
     [](const Recipe&, Command c) { return trains(c); },
     [](Recipe& r) { r.memory.checkpointing = "full"; },
     [](Recipe& r) { r.memory.checkpointing = "none"; }},
    {"memory.vision_checkpointing: full",
     {"/memory/vision_checkpointing", nullptr},
     true,
     [](const Recipe& r, Command) { return r.memory.vision_checkpointing == "full"; },
     [](const Recipe& r, Command c) { return trains(c) && !r.freeze.vision_tower; },
     [](Recipe& r) { r.memory.vision_checkpointing = "full"; },
     [](Recipe& r) { r.memory.vision_checkpointing = "none"; }},
    {"data.embedding_cache",
     {"/data/embedding_cache", nullptr},
     false,
     [](const Recipe& r, Command) { return r.data.embedding_cache.has_value(); },
     [](const Recipe& r, Command c) {
       return trains(c) && r.freeze.vision_tower && !(r.lora && !r.lora->vision_target_modules.empty());
     },
     [](Recipe& r) { r.data.embedding_cache = r.data.embedding_cache.value_or("embedding-cache"); },
     [](Recipe& r) { r.data.embedding_cache.reset(); }},
    {"memory.loss_chunk_tokens: 1024",
     {"/memory/loss_chunk_tokens", nullptr},
     true,
     [](const Recipe& r, Command) { return r.memory.loss_chunk_tokens > 0; },
     [](const Recipe&, Command c) { return trains(c); },
     [](Recipe& r) { r.memory.loss_chunk_tokens = 1024; },
     [](Recipe& r) { r.memory.loss_chunk_tokens = 0; }},
    {"one row at a time, accumulated",
     {"/train/per_device_batch_size", "/train/gradient_accumulation_steps"},
     true,
     [](const Recipe& r, Command) {
       return r.train.per_device_batch_size == 1 && r.train.gradient_accumulation_steps > 1;
     },
     [](const Recipe& r, Command c) {
       return trains(c) && !r.schedule.accumulation_stages && !r.train.max_tokens_per_batch &&
              r.train.per_device_batch_size * r.train.gradient_accumulation_steps > 1;
     },
     [](Recipe& r) {
       r.train.gradient_accumulation_steps *= r.train.per_device_batch_size;
       r.train.per_device_batch_size = 1;
     },
     [](Recipe& r) {
       r.train.per_device_batch_size *= r.train.gradient_accumulation_steps;
       r.train.gradient_accumulation_steps = 1;
     }},
    {"optimizer.name: adamw8bit",
     {"/optimizer/name", nullptr},
     true,
     [](const Recipe& r, Command) { return r.optimizer.name == OptimizerName::kAdamw8bit; },
     [](const Recipe& r, Command c) { return trains(c) && r.optimizer.name != OptimizerName::kLion; },
     [](Recipe& r) { r.optimizer.name = OptimizerName::kAdamw8bit; },
     [](Recipe& r) { r.optimizer.name = OptimizerName::kAdamw; }},
    {"quantization.bits: 4",
     {"/quantization/bits", nullptr},
     true,
     [](const Recipe& r, Command) { return r.quantization.bits < 16; },
     [](const Recipe& r, Command c) {
       return (!trains(c) || r.freeze.language_model) && !read_stored_quantization(r.model.path);
     },
     [](Recipe& r) {
       r.quantization.bits = 4;
       if (r.quantization.type == QuantizationType::kInt8) r.quantization.type = QuantizationType::kNf4;
     },
     [](Recipe& r) { r.quantization.bits = 16; }},
    {"memory.offload.parameters",
     {"/memory/offload/parameters", nullptr},
     true,
     [](const Recipe& r, Command) { return r.memory.offload.parameters != "none"; },
     [](const Recipe& r, Command c) {
       return (!trains(c) || r.freeze.language_model) && !read_stored_quantization(r.model.path);
     },
     [](Recipe& r) {
       if (r.quantization.bits == 16) r.memory.offload.parameters = r.hardware.device == "cpu" ? "disk" : "cpu";
     },
     [](Recipe& r) { r.memory.offload.parameters = "none"; }},
    {"memory.optimizer_in_backward",
     {"/memory/optimizer_in_backward", nullptr},
     true,
     [](const Recipe& r, Command) { return r.memory.optimizer_in_backward; },
     [](const Recipe& r, Command c) {
       return trains(c) && r.optimizer.max_grad_norm == 0 && r.train.gradient_accumulation_steps == 1 &&
              r.precision.compute != Precision::kFp16 && r.memory.offload.gradients == "none";
     },
     [](Recipe& r) { r.memory.optimizer_in_backward = r.train.gradient_accumulation_steps == 1; },
     [](Recipe& r) { r.memory.optimizer_in_backward = false; }},
    {"memory.offload: optimizer and gradients",
     {"/memory/offload/optimizer", "/memory/offload/gradients"},
     true,
     [](const Recipe& r, Command) { return r.memory.offload.optimizer != "none"; },
     [](const Recipe& r, Command c) { return trains(c) && r.hardware.device != "cpu"; },
     [](Recipe& r) {
       r.memory.offload.optimizer = "cpu";
       r.memory.offload.gradients = r.memory.optimizer_in_backward ? "none" : "cpu";
     },
     [](Recipe& r) { r.memory.offload.optimizer = r.memory.offload.gradients = "none"; }},
    {"memory.offload.activations",
     {"/memory/offload/activations", nullptr},
     true,
     [](const Recipe& r, Command) { return r.memory.offload.activations != "none"; },
     [](const Recipe& r, Command c) {
       return trains(c) && r.hardware.device != "cpu" && r.memory.checkpointing != "none";
     },
     [](Recipe& r) { r.memory.offload.activations = r.memory.checkpointing == "none" ? "none" : "cpu"; },
     [](Recipe& r) { r.memory.offload.activations = "none"; }},
    {"16-bit weights",
     {"/precision/parameters", nullptr},
     false,
     [](const Recipe& r, Command) { return r.precision.parameters != Precision::kFp32; },
     [](const Recipe&, Command) { return true; },
     [](Recipe& r) {
       r.precision.parameters = r.precision.compute == Precision::kFp16 ? Precision::kFp16 : Precision::kBf16;
     },
     [](Recipe& r) { r.precision.parameters = Precision::kFp32; }},
    {"16-bit arithmetic",
     {"/precision/compute", nullptr},
     false,
     [](const Recipe& r, Command) { return r.precision.compute != Precision::kFp32; },
     [](const Recipe&, Command) { return true; },
     [](Recipe& r) { r.precision.compute = Precision::kBf16; },
     [](Recipe& r) { r.precision.compute = Precision::kFp32; }},
};

}  // namespace

std::span<const Technique> techniques() { return kTechniques; }

}  // namespace vlmtune
