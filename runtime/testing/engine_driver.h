// Drives an engine in tests: collects what a request says, and says what it should have said.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine.h"
#include "runtime/sampler.h"
#include "runtime/testing/fake_executable.h"

namespace onw::testing {

struct Answer {
  std::vector<int32_t> tokens;
  FinishReason finish = FinishReason::none;
  Usage usage;
  std::optional<Error> error;
};

inline void add(Answer& answer, const TokenEvent& event) {
  EXPECT_EQ(answer.finish, FinishReason::none) << "an event after the finish";
  if (event.id >= 0) answer.tokens.push_back(event.id);
  answer.finish = event.finish;
  answer.usage = event.usage;
  answer.error = event.error;
}

inline std::vector<Answer> collect(Generation& generation, int choices) {
  std::vector<Answer> answers(static_cast<size_t>(choices));
  while (const auto event = generation.next()) add(answers.at(static_cast<size_t>(event->choice)), *event);
  for (const Answer& answer : answers) EXPECT_NE(answer.finish, FinishReason::none) << "a choice without an end";
  return answers;
}

inline std::vector<Answer> answers(Engine& engine, GenerateRequest request) {
  const int choices = request.choices;
  auto generation = engine.submit(std::move(request));
  EXPECT_TRUE(generation) << generation.error().message;
  return collect(**generation, choices);
}

inline Answer answer(Engine& engine, GenerateRequest request) { return answers(engine, std::move(request)).at(0); }

// An engine on a fake, and the fake itself.
struct FakeEngine {
  std::unique_ptr<Engine> engine;
  std::shared_ptr<FakeShared> fake;
  Engine* operator->() const { return engine.get(); }
  Engine& operator*() const { return *engine; }
};

// Steps of a fake that says how long they take are timed by its clock, so that what comes of it is exact.
inline void use_clock_of(const std::shared_ptr<FakeShared>& fake, EngineOptions& options) {
  if (fake->options.even_step.count() > 0) options.seconds = [fake] { return fake->seconds.load(); };
}

inline FakeEngine fake_engine(const FakeOptions& fake = {}, EngineOptions options = {}) {
  auto executable = std::make_unique<FakeExecutable>(fake);
  auto shared = executable->shared();
  use_clock_of(shared, options);
  if (options.memory_bytes == 0) options.memory_bytes = int64_t{1} << 40;
  auto engine = Engine::create(std::move(executable), options);
  EXPECT_TRUE(engine) << engine.error().message;
  return {std::move(*engine), std::move(shared)};
}

// What the fake model answers when it is run from scratch, one token at a time, without an engine.
inline std::vector<int32_t> expected_tokens(const std::vector<int32_t>& prompt, const SamplingParams& params,
                                            int64_t count, uint32_t choice = 0, int64_t vocabulary = 64) {
  Sampler sampler(params, params.seed.value_or(0), choice);
  sampler.see_prompt(prompt);
  uint64_t hash = 0;
  for (const int32_t token : prompt) hash = fake_hash(hash, token, 0);
  std::vector<int32_t> tokens;
  std::vector<float> logits(static_cast<size_t>(vocabulary));
  for (int64_t i = 0; i < count; ++i) {
    fake_logits(hash, logits);
    tokens.push_back(sampler.draw(logits, static_cast<int64_t>(prompt.size()) + i, nullptr, -1)->id);
    sampler.see_answer(tokens.back());
    hash = fake_hash(hash, tokens.back(), 0);
  }
  return tokens;
}

}  // namespace onw::testing
