// A struct with rows: everything about its keys follows from them.
#include <gmock/gmock.h>

#include <trireme/config/given.h>
#include <trireme/config/names.h>
#include <trireme/config/print.h>
#include <trireme/config/registry.h>
#include <array>
#include <cmath>

#include "../base/expect_error.h"

namespace trireme::config_row_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

struct Wheel {
  int64_t spokes = 32;
};
config::Rows rows_of(const Wheel*) {
  using O = Wheel;
  return config::all_of<O>({config::row(&O::spokes, {.name = "wheel.spokes",
                                                     .meaning = "Spokes of each wheel.",
                                                     .range = config::from_to(8, 48)})});
}

config::Names& colours() {
  static config::Names names({"red", "blue"});
  return names;
}

struct Cart {
  Wheel wheel;
  std::string colour = "red";
  double load = 0.5;
  std::array<int, 2> seats{1, 2};  // Kept in two numbers, and written as one text.
  std::string owner;
};
std::string seats_text(const Cart& cart) {
  return std::to_string(cart.seats[0]) + "x" + std::to_string(cart.seats[1]);
}
void set_seats(Cart& cart, const std::string& text) {
  if (text.size() != 3 || text[1] != 'x')
    throw Error(ErrorCode::invalid_argument, "test", "'" + text + "' is not rows x seats", "2x3");
  cart.seats = {text[0] - '0', text[2] - '0'};
}
config::Rows rows_of(const Cart*) {
  using O = Cart;
  return config::all_of<O>(
      {config::part(&O::wheel),
       config::row(&O::colour, {.name = "cart.colour",
                                .meaning = "Its colour.",
                                .choices = [] { return config::with("none", colours().all()); }}),
       config::row(&O::load, {.name = "cart.load",
                              .meaning = "Its load in t.",
                              .range = config::above(0),
                              .only_for = {"cart.colour", {"red"}}}),
       config::row_as_text<O>(seats_text, set_seats,
                              {.name = "cart.seats", .meaning = "Rows x seats.", .agreed = false}),
       config::no_row(&O::owner)});
}

struct Motor {
  uint64_t number = 1;
  double limit = 0, power = 1;
  std::vector<int64_t> gears{1, 2};
  Milliseconds rest{5};
};
config::Rows rows_of(const Motor*) {
  using O = Motor;
  const auto small = config::from_to(0, 9);
  return config::all_of<O>(
      {config::row(&O::number, {.name = "motor.number", .range = config::at_least(0)}),
       config::row(&O::limit, {.name = "motor.limit", .range = config::at_least_or_infinite(0)}),
       config::row(&O::power, {.name = "motor.power", .range = config::at_least(0)}),
       config::row(&O::gears, {.name = "motor.gears", .range = small}),
       config::row(&O::rest, {.name = "motor.rest", .range = config::at_least(0)})});
}

namespace {

const config::Table& table() { return config::table_of<Cart>(); }

Cart read(const std::vector<std::string>& set) {
  Cart cart;
  config::read({{}, set, {}}, table(), &cart);
  return cart;
}
std::string refusal(const std::vector<std::string>& set) {
  return message_of(ErrorCode::invalid_argument, [&] { read(set); });
}

static_assert(config::count_fields<Wheel>() == 1);
static_assert(config::count_fields<Cart>() == 5);

TEST(ConfigRow, WritesTheMembersOfTheStructAndOfItsParts) {
  const Cart cart = read({"wheel.spokes=20", "cart.colour=blue", "cart.seats=2x4"});
  EXPECT_EQ(cart.wheel.spokes, 20);
  EXPECT_EQ(cart.colour, "blue");
  EXPECT_THAT(cart.seats, ElementsAre(2, 4));
  EXPECT_EQ(cart.load, 0.5);
}

TEST(ConfigRow, RefusesWhatItDoesNotAllowAndNamesTheDefault) {
  EXPECT_THAT(refusal({"wheel.spokes=7"}),
              AllOf(HasSubstr("--set: wheel.spokes is \"7\"; expected: whole number, 8 to 48"),
                    HasSubstr("try: wheel.spokes=32 (the default)")));
  EXPECT_THAT(refusal({"cart.colour=rad"}), HasSubstr("try: cart.colour=red"));
  EXPECT_THAT(refusal({"cart.seats=many"}),
              AllOf(HasSubstr("--set: cart.seats: 'many' is not"), HasSubstr("try: 2x3")));
  EXPECT_THAT(refusal({"cart.colour=blue", "cart.load=2"}),
              HasSubstr("cart.load is for cart.colour red, but cart.colour is blue"));
  EXPECT_THAT(refusal({"wheel.spoke=9"}), HasSubstr("try: wheel.spokes"));
}

TEST(ConfigRow, ChecksStructsThatAProgrammeHasFilled) {
  config::check_values(Cart{});
  EXPECT_THAT(message_of(ErrorCode::invalid_argument,
                         [] { config::check_values(Cart{.wheel = {.spokes = 99}}); }),
              HasSubstr("wheel.spokes is \"99\""));
}

std::string wrong_value(const Motor& motor) {
  return message_of(ErrorCode::invalid_argument, [&] { config::check_values(motor); });
}

TEST(ConfigRow, TakesEveryNumberThatTheMemberHolds) {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Motor motor{.number = kMost, .limit = kInfinity, .gears = {0, 9}};
  config::check_values(motor);
  const config::Table& motors = config::table_of<Motor>();
  const std::vector<std::string> settings = config::to_settings(motors, &motor);
  EXPECT_THAT(settings, ElementsAre("motor.number=18446744073709551615", "motor.limit=inf",
                                    "motor.gears=[0, 9]"));
  Motor again;
  config::read({{}, settings, {}}, motors, &again);
  EXPECT_EQ(again.number, kMost);
  EXPECT_EQ(again.limit, kInfinity);
  EXPECT_EQ(config::to_json(motors, &motor)["motor"]["limit"], "inf");
}

TEST(ConfigRow, RefusesNumbersBesideTheRangeWhoeverGivesThem) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_THAT(wrong_value({.limit = -kInfinity}),
              HasSubstr("motor.limit is \"-inf\"; expected: number, at least 0, or inf"));
  EXPECT_THAT(wrong_value({.limit = std::nan("")}), HasSubstr("motor.limit is \"nan\""));
  EXPECT_THAT(wrong_value({.power = kInfinity}), HasSubstr("motor.power is \"inf\""));
  EXPECT_THAT(wrong_value({.gears = {3, 10}}), HasSubstr("motor.gears is \"[3, 10]\""));
  EXPECT_THAT(wrong_value({.rest = Milliseconds(-1)}), HasSubstr("motor.rest is \"-1ms\""));
  Motor motor;
  EXPECT_THAT(
      message_of(
          ErrorCode::invalid_argument,
          [&] { config::read({{}, {"motor.number=-1"}, {}}, config::table_of<Motor>(), &motor); }),
      HasSubstr("motor.number is \"-1\"; expected: whole number, at least 0"));
}

TEST(ConfigRow, PrintsSettingsAndDocumentsAndWhatRanksAgreeOn) {
  const Cart cart{.wheel = {.spokes = 10}, .seats = {3, 3}};
  EXPECT_THAT(config::to_settings(table(), &cart),
              ElementsAre("wheel.spokes=10", "cart.seats=3x3"));
  EXPECT_THAT(config::agreed_values(table(), &cart),
              ElementsAre(Pair("wheel.spokes", "10"), Pair("cart.colour", "red"),
                          Pair("cart.load", "0.5")));
  EXPECT_EQ(config::to_json(table(), &cart)["cart"]["load"], 0.5);
  EXPECT_THAT(config::describe(table()),
              HasSubstr("| cart.seats   | text                   | 1x2     | Rows x seats. |"));
}

TEST(ConfigRow, OffersNamesThatAProgrammeHasRegistered) {
  EXPECT_THAT(refusal({"cart.colour=green"}), HasSubstr("one of none, red, blue"));
  colours().add("green");
  EXPECT_EQ(read({"cart.colour=green"}).colour, "green");
}

TEST(ConfigRegistry, RefusesNamesThatAreTaken) {
  config::Registry<std::function<int()>> registry("toy");
  const auto refused = [&](const std::string& name, std::function<int()> make) {
    return message_of(ErrorCode::invalid_argument,
                      [&] { registry.add(name, std::move(make), {"ball"}); });
  };
  registry.add("kite", [] { return 3; }, {"ball"});
  EXPECT_EQ(registry.find("kite")(), 3);
  EXPECT_THAT(refused("kite", [] { return 4; }), HasSubstr("a toy 'kite' already exists"));
  EXPECT_THAT(refused("ball", [] { return 4; }), HasSubstr("a toy 'ball' already exists"));
  EXPECT_THAT(refused("top", nullptr), HasSubstr("nothing makes the toy"));
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { registry.find("top"); }),
              HasSubstr("toy 'top' is not known; try: kite, or a name that is registered before"));
  const config::Registry<std::function<int()>> empty("toy");
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { empty.find("top"); }),
              HasSubstr("try: the name of a toy that is registered before"));
}

}  // namespace
}  // namespace trireme::config_row_test
