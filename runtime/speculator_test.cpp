#include "runtime/speculator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/testing/random.h"

namespace onw {
namespace {

using onw::testing::Random;
using ::testing::Each;
using ::testing::ElementsAre;

// What a step of so many rows takes: from memory, as the seen machines do, and with every row as dear as the first.
double memory_bound(int rows) { return 1 + 0.03 * (rows - 1); }
double weak_processor(int rows) { return 1 + 0.3 * (rows - 1); }
double each_row_the_same(int rows) { return rows; }
double blocks_of_four(int rows) { return 1 + 0.6 * ((rows + 3) / 4) - 0.6 * (rows == 1 ? 1 : 0); }

TEST(DraftPlan, drafts_where_it_pays_and_not_where_it_does_not) {
  const DraftOffer likely = {15, 0.9, 100}, unlikely = {15, 0.02, 100};
  EXPECT_GE(plan_drafts({{likely}}, 64, memory_bound).lengths[0], 8);
  EXPECT_EQ(plan_drafts({{unlikely}}, 64, memory_bound).lengths[0], 0);
  EXPECT_EQ(plan_drafts({{likely}}, 64, each_row_the_same).lengths[0], 0);
  const int weak = plan_drafts({{likely}}, 64, weak_processor).lengths[0];
  EXPECT_GE(weak, 1);
  EXPECT_LE(weak, 6);
}

TEST(DraftPlan, fills_blocks_whose_rows_cost_the_same) {
  EXPECT_EQ(plan_drafts({{{15, 0.7, 100}}}, 64, blocks_of_four).lengths[0] % 4, 3);
}

TEST(DraftPlan, more_sessions_draft_less_each) {
  const auto cost = [](int rows) { return 1 + 0.01 * rows + (rows > 16 ? 0.08 * (rows - 16) : 0); };
  int before = 16;
  for (const size_t sessions : {1U, 4U, 8U, 16U}) {
    const std::vector<DraftOffer> offers(sessions, {15, 0.8, 100});
    const auto plan = plan_drafts(offers, 64, cost);
    int longest = 0;
    for (const int length : plan.lengths) longest = std::max(longest, length);
    EXPECT_LT(longest, before) << sessions;
    before = longest;
  }
  EXPECT_EQ(before, 0);
}

TEST(DraftPlan, the_surer_session_gets_more_rows) {
  const auto plan = plan_drafts({{{15, 0.9, 100}, {15, 0.5, 100}, {0, 0, 100}}}, 10, memory_bound);
  EXPECT_GT(plan.lengths[0], plan.lengths[1]);
  EXPECT_EQ(plan.lengths[2], 0);
  EXPECT_LE(plan.lengths[0] + plan.lengths[1] + 3, 10);
}

TEST(DraftPlan, never_charges_more_than_a_budget) {
  Random random(1);
  for (int round = 0; round < 500; ++round) {
    std::vector<DraftOffer> offers;
    for (int64_t i = random.below(6); i >= 0; --i)
      offers.push_back({static_cast<int>(random.below(16)), random.uniform(), random.uniform() - 0.2});
    const double slope = random.uniform();
    const auto plan = plan_drafts(offers, static_cast<int>(random.below(40)), [&](int r) { return 1 + slope * r; });
    for (size_t i = 0; i < offers.size(); ++i) {
      EXPECT_LE(plan.lengths[i], offers[i].tokens);
      if (plan.lengths[i] > 0) EXPECT_LE(plan.lengths[i] * plan.charge_per_token, offers[i].budget);
    }
  }
}

// Drafts fifteen tokens, of one grade, whenever it is asked.
class Fixed final : public Drafter {
 public:
  explicit Fixed(int32_t token, double chance = 0.6) : token_(token), chance_(chance) {}
  std::string_view name() const override { return "fixed"; }
  int grades() const override { return 1; }
  Draft propose(std::span<const TokenKey>, int most) override {
    return {.tokens = std::vector<int32_t>(static_cast<size_t>(most), token_), .chance = chance_};
  }

 private:
  int32_t token_;
  double chance_;
};

std::vector<std::unique_ptr<Drafter>> one(int32_t token, double chance = 0.6) {
  std::vector<std::unique_ptr<Drafter>> ladder;
  ladder.push_back(std::make_unique<Fixed>(token, chance));
  return ladder;
}

struct Simulated {
  double speed = 0;    // against none drafted, at the end
  double slowest = 9;  // at any moment
  int64_t drafted = 0;
};

// A session of `steps`, where each drafted token is right with the chance that `right` tells of its step.
Simulated simulate(double (*cost)(int), const std::function<double(int)>& right, int steps) {
  Speculator speculator(one(1));
  Random random(9);
  double time = 0, tokens = 0;
  Simulated s;
  for (int step = 0; step < steps; ++step) {
    const DraftOffer offer = speculator.offer({}, 15, 100);
    const auto plan = plan_drafts({{offer}}, 16, cost);
    const int drafted = plan.lengths[0];
    int accepted = 0;
    while (accepted < drafted && random.chance(right(step))) ++accepted;
    speculator.settle(drafted, accepted, drafted * plan.charge_per_token);
    time += cost(1 + drafted);
    tokens += 1 + accepted;
    s.drafted += drafted;
    s.speed = tokens * cost(1) / time;
    s.slowest = std::min(s.slowest, s.speed);
  }
  return s;
}

TEST(Speculator, is_at_no_moment_slower_than_0_97_of_the_speed_without_it) {
  const std::pair<const char*, std::function<double(int)>> texts[] = {
      {"never right", [](int) { return 0.0; }},
      {"seldom right", [](int) { return 0.1; }},
      {"one in three", [](int) { return 0.33; }},
      {"right, then wrong", [](int step) { return step % 100 < 50 ? 0.95 : 0.0; }},
      {"wrong just after it was right", [](int step) { return step % 7 == 0 ? 1.0 : 0.0; }}};
  for (double (*cost)(int) : {memory_bound, weak_processor, each_row_the_same, blocks_of_four})
    for (const auto& [name, right] : texts)
      for (const int steps : {5, 20, 1000}) {
        const Simulated s = simulate(cost, right, steps);
        EXPECT_GE(s.slowest, 0.97) << name << ", " << steps << " steps, 4 rows cost " << cost(4);
      }
}

TEST(Speculator, gains_what_there_is_to_gain) {
  EXPECT_GE(simulate(memory_bound, [](int) { return 0.9; }, 300).speed, 4);
  EXPECT_GE(simulate(memory_bound, [](int) { return 0.6; }, 300).speed, 1.8);
  EXPECT_GE(simulate(weak_processor, [](int) { return 0.95; }, 300).speed, 1.8);
}

TEST(Speculator, is_off_where_it_would_lose_and_tries_again_now_and_then) {
  const Simulated wrong = simulate(memory_bound, [](int) { return 0.0; }, 2000);
  EXPECT_LE(wrong.drafted, 80);
  EXPECT_GE(wrong.drafted, 8);
  EXPECT_GE(wrong.speed, 0.995);
  const Simulated later = simulate(memory_bound, [](int step) { return step < 1000 ? 0.0 : 0.9; }, 2000);
  EXPECT_GE(later.speed, 2);  // it notices that the text has changed
}

TEST(Speculator, asks_the_next_drafter_until_one_is_sure) {
  const auto ladder = [](double first, double second) {
    auto drafters = one(1, first);
    drafters.push_back(std::make_unique<Fixed>(2, second));
    return drafters;
  };
  Speculator sure(ladder(0.8, 0.9));
  (void)sure.offer({}, 2, 100);
  EXPECT_THAT(sure.tokens(), ElementsAre(1, 1));
  Speculator unsure(ladder(0.5, 0.9));
  (void)unsure.offer({}, 2, 100);
  EXPECT_THAT(unsure.tokens(), ElementsAre(2, 2));
  for (int i = 0; i < 20; ++i) {  // the second is wrong all the time, the first half of it
    unsure.settle(2, unsure.tokens()[0] == 1 ? 1 : 0, 0);
    (void)unsure.offer({}, 2, 100);
  }
  EXPECT_THAT(unsure.tokens(), Each(1));
}

TEST(Speculator, never_offers_a_token_outside_the_vocabulary) {
  Speculator speculator(one(100));
  EXPECT_EQ(speculator.offer({}, 5, 100).tokens, 0);
  EXPECT_EQ(speculator.offer({}, 5, 101).tokens, 5);
  EXPECT_EQ(speculator.offer({}, 0, 101).tokens, 0);
}

// ---- Drafts that are made later, at a cost

TEST(PlanDrafts, what_making_them_takes_is_set_against_what_they_gain) {
  const DraftOffer offer = {.tokens = 8, .chance = 0.8, .budget = 100, .later = true};
  const auto length = [&](double making) {
    return plan_drafts({&offer, 1}, 16, {[](int) { return 1.0; }, [=](int) { return making; }}).lengths[0];
  };
  EXPECT_EQ(length(0), 8);
  EXPECT_LT(length(0.1), length(0.02));
  EXPECT_GT(length(0.1), 0);
  EXPECT_EQ(length(0.9), 0);  // a token gained for nearly a step's time
}

TEST(PlanDrafts, tokens_of_several_sessions_are_made_together) {
  const std::vector<DraftOffer> offers(4, {.tokens = 8, .chance = 0.6, .budget = 100, .later = true});
  const auto lengths = [&](const std::function<double(int)>& making) {
    return plan_drafts(offers, 64, {[](int) { return 1.0; }, making}).lengths;
  };
  // As much for four as for one, or four times as much.
  EXPECT_GT(lengths([](int) { return 0.4; })[0], lengths([](int n) { return 0.4 * n; })[0]);
}

TEST(Speculator, takes_the_rung_of_the_ladder_that_is_worth_most) {
  class Known final : public Drafter {
   public:
    explicit Known(double chance) : chance_(chance) {}
    std::string_view name() const override { return "known"; }
    int grades() const override { return 1; }
    Draft propose(std::span<const TokenKey>, int most) override {
      return {.tokens = std::vector<int32_t>(static_cast<size_t>(most), 1), .chance = chance_};
    }

   private:
    double chance_;
  };
  const auto rung = [](double lookup, double layer, double making) {
    std::vector<std::unique_ptr<Drafter>> ladder;
    ladder.push_back(std::make_unique<Known>(lookup));
    ladder.push_back(std::make_unique<MtpDrafter>([layer] { return layer; }));
    Speculator speculator(std::move(ladder));
    (void)speculator.offer({}, 8, 100, [=](DraftOffer offer) {
      offer.budget = 100;
      return plan_drafts({&offer, 1}, 9, {[](int) { return 1.0; }, [=](int) { return making; }}).tokens_per_second;
    });
    return speculator.later();
  };
  EXPECT_FALSE(rung(0.9, 0.8, 0.05));  // a long match
  EXPECT_TRUE(rung(0.4, 0.8, 0.05));
  EXPECT_FALSE(rung(0.4, 0.8, 0.9));   // the layer takes too long
  EXPECT_FALSE(rung(0.4, 0.0, 0.05));  // and cannot guess
}

}  // namespace
}  // namespace onw
