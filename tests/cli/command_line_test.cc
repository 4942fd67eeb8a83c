#include <gmock/gmock.h>
#include <trireme/cli/commands.h>
#include <cstdio>
#include <memory>
#include <sstream>

#include "../base/expect_error.h"

namespace trireme::cli::command_line_test {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

// "trireme" is not among the words, and '' is an empty word.
std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word == "''" ? "" : word);
  return words;
}

std::function<int()> parse(const std::string& line) {
  // The action may refer to it after the parse.
  static std::vector<std::unique_ptr<CommandLine>> kept;
  kept.push_back(std::make_unique<CommandLine>("trireme", "All commands"));
  add_commands(*kept.back());
  return kept.back()->parse(words_of(line));
}

std::string refused(const std::string& line) {
  const std::string message = message_of(ErrorCode::invalid_argument, [&] { parse(line); });
  EXPECT_THAT(message,
              AllOf(testing::StartsWith("[cli] "), HasSubstr("; try: "), Not(HasSubstr("\n"))));
  return message;
}

std::string printed_by(const std::string& line) {
  testing::internal::CaptureStdout();
  int code = -1;
  try {
    code = parse(line)();
    std::fflush(stdout);
  } catch (...) {
    testing::internal::GetCapturedStdout();
    throw;
  }
  EXPECT_EQ(code, kExitOk) << line;
  return testing::internal::GetCapturedStdout();
}

TEST(CommandLine, NamesTheNearestCommand) {
  EXPECT_EQ(refused("trian x.yaml --workers 2"),
            "[cli] trireme has no command 'trian'; try: trireme train");
  EXPECT_EQ(refused("ckpt inspct x"),
            "[cli] trireme ckpt has no command 'inspct'; try: trireme ckpt inspect");
  EXPECT_THAT(refused("bench colectives"), EndsWith("; try: trireme bench collectives"));
  EXPECT_THAT(refused("pigeon"), AllOf(HasSubstr("'pigeon'"), EndsWith("trireme help, which lists "
                                                                       "the commands")));
  EXPECT_THAT(refused("ckpt pigeon"), HasSubstr("; try: trireme help ckpt, which"));
  EXPECT_THAT(refused("''"), HasSubstr("has no command ''"));
}

TEST(CommandLine, FindsACommandWhereItBelongs) {
  EXPECT_THAT(refused("inspect runs/a"), EndsWith("; try: trireme ckpt inspect"));
  EXPECT_THAT(refused("verifi runs/a"), EndsWith("; try: trireme ckpt verify"));
  EXPECT_THAT(refused("ckpt train"), EndsWith("; try: trireme train"));
  EXPECT_THAT(refused("ckpt help"), EndsWith("; try: trireme help ckpt"));
}

TEST(CommandLine, ListsTheCommandsWhereOneIsMissing) {
  EXPECT_EQ(refused("ckpt"),
            "[cli] trireme ckpt needs a command behind it, and there is none; try: trireme ckpt "
            "inspect, verify, diff, convert or prune");
  EXPECT_THAT(refused(""), HasSubstr("; try: trireme train, launch, "));
}

TEST(CommandLine, NamesTheNearestOption) {
  EXPECT_EQ(refused("train x.yaml --wrkers 2"),
            "[cli] trireme train has no option --wrkers; try: --workers");
  EXPECT_THAT(refused("train --wrkers=2"), EndsWith("--wrkers; try: --workers"));
  EXPECT_THAT(refused("train -workers 2"), EndsWith(" -workers; try: --workers"));
  EXPECT_THAT(refused("train -w 2"), EndsWith(" -w; try: --workers"));
  EXPECT_THAT(refused("train --Workers 2"), EndsWith("; try: --workers"));
  EXPECT_THAT(refused("--wrkers 2"), EndsWith("; try: trireme train --workers"));
  EXPECT_THAT(refused("train --Work 2"), EndsWith("; try: --workers"));
  EXPECT_THAT(refused("launch --stop_grace 3s -- true"), EndsWith("; try: --stop-grace"));
  EXPECT_THAT(refused("launch --wrkers 2 -- true"), EndsWith("; try: --workers"));
  EXPECT_THAT(refused("ckpt prune --keep-bst 3 x"), EndsWith("; try: --keep-best"));
  EXPECT_THAT(refused("--versio"), EndsWith("; try: --version"));
  EXPECT_THAT(refused("train --pigeon"),
              EndsWith("; try: trireme help train, which lists the options"));
}

TEST(CommandLine, SaysWhichCommandHasTheOption) {
  EXPECT_EQ(refused("train --op all_reduce"),
            "[cli] trireme train has no option --op, but trireme bench collectives has it; try: "
            "trireme bench collectives --op");
  EXPECT_THAT(refused("doctor --workers 2"),
              AllOf(HasSubstr("but trireme train, trireme launch, trireme plan and "),
                    HasSubstr(" other commands have it")));
  EXPECT_EQ(refused("--workers 2 train x.yaml"),
            "[cli] trireme has no option --workers, which belongs behind the command; try: "
            "trireme train --workers");
}

TEST(CommandLine, TellsOptionsFromKeysAndArguments) {
  EXPECT_THAT(refused("train --steps 5"), HasSubstr("; try: --set train.steps=5"));
  EXPECT_THAT(refused("train --optimizer.lr=0.1"), EndsWith("; try: --set optimizer.lr=0.1"));
  EXPECT_THAT(refused("train --optimizer.lrr 0.1"), EndsWith("; try: --set optimizer.lr=0.1"));
  EXPECT_THAT(refused("plan --model gpt"), HasSubstr("; try: --set model.name=gpt"));
  EXPECT_THAT(refused("train --config x.yaml"),
              HasSubstr("trireme train x.yaml, without --config"));
  EXPECT_THAT(refused("train optimizer.lr=0.1"), EndsWith("; try: --set optimizer.lr=0.1"));
  EXPECT_THAT(refused("train x.yaml workers 2"), EndsWith("; try: --workers"));
  EXPECT_THAT(refused("train \u2013workers 2"),
              AllOf(HasSubstr("hyphen"), EndsWith("; try: --workers")));
}

TEST(CommandLine, NamesTheOptionOfAMissingValue) {
  EXPECT_EQ(refused("train x.yaml --workers"),
            "[cli] --workers has no value; try: --workers NUMBER");
  EXPECT_EQ(refused("train x.yaml --report --quiet"),
            "[cli] --report has no value: --quiet follows; try: --report VALUE");
  EXPECT_THAT(refused("launch --workers -- true"),
              HasSubstr("--workers has no value: -- follows"));
  EXPECT_THAT(refused("train --report= --quiet"), HasSubstr("--report has no value"));
}

TEST(CommandLine, NamesAValueThatIsNoNumber) {
  EXPECT_EQ(refused("train --workers two"),
            "[cli] --workers is 'two', which is not a whole number; try: --workers NUMBER, such "
            "as 2");
  for (const char* const value : {"2.5", "''", "2x", "0x"})
    EXPECT_THAT(refused(std::string("train --workers ") + value), HasSubstr("not a whole number"));
  EXPECT_THAT(refused("train --workers=two"), HasSubstr("'two'"));
  EXPECT_THAT(refused("train --workers 2147483648"),
              HasSubstr("'2147483648', which is too large"));
  EXPECT_THAT(refused("train --workers -2147483649"), HasSubstr("too small"));
  EXPECT_THAT(refused("bench step --steps 9223372036854775808"), HasSubstr("too large"));
  EXPECT_NO_THROW(parse("bench step --steps 9223372036854775807"));
  EXPECT_EQ(refused("scale four"),
            "[cli] the argument workers of trireme scale is 'four', which is not a whole number; "
            "try: trireme scale 4");
  EXPECT_NO_THROW(parse("scale -1"));  // The job refuses it, and knows its bounds.
}

TEST(CommandLine, NamesAnOptionThatIsGivenTwiceOrWithAnother) {
  EXPECT_EQ(refused("train --workers 2 --workers 3"),
            "[cli] --workers is given twice, as '2' and as '3'; try: only one of them");
  EXPECT_THAT(refused("plan --set a.b=1 --schedule 1f1b"),
              HasSubstr("--set and --schedule exclude each other"));
  EXPECT_THAT(refused("plan x.yaml --schedule 1f1b"),
              HasSubstr("the argument config and --schedule exclude each other"));
  EXPECT_THAT(refused("scale 4 --rendezvous x --job 3"),
              HasSubstr("--rendezvous and --job exclude each other"));
  EXPECT_THAT(refused("train --quiet=maybe"),
              HasSubstr("--quiet takes no value, and has 'maybe'"));
  EXPECT_NO_THROW(parse("train --quiet --quiet"));
}

TEST(CommandLine, NamesTheArgumentThatIsTooMuch) {
  EXPECT_EQ(refused("train a.yaml --workers 2 b.yaml c"),
            "[cli] trireme train does not expect 'b.yaml': its argument config is 'a.yaml'; try: "
            "leave out 'b.yaml', or trireme help train");
  EXPECT_THAT(refused("ckpt diff a b c"), HasSubstr("its arguments a and b are 'a' and 'b'"));
  EXPECT_THAT(refused("doctor x"), HasSubstr("does not expect 'x': it takes no arguments"));
  EXPECT_THAT(refused("train -- a.yaml b"), HasSubstr("does not expect 'b'"));
}

TEST(CommandLine, ShowsAnExampleWhereAnArgumentIsMissing) {
  EXPECT_EQ(refused("ckpt diff a"),
            "[cli] trireme ckpt diff lacks the argument b; try: trireme ckpt diff "
            "runs/a/checkpoint model.pt");
  EXPECT_THAT(refused("scale --job 3"), HasSubstr("lacks the argument workers; try: trireme"));
  EXPECT_THAT(refused("train ''"), HasSubstr("the argument config of trireme train is empty"));
}

TEST(CommandLine, LeavesTheWordsOfALaunchedProgramme) {
  EXPECT_NO_THROW(parse("launch --workers 2 -- sh -c x --workers two ''"));
  EXPECT_NO_THROW(parse("launch --role a=1 --agree a,worker:x true"));
  EXPECT_NO_THROW(parse("launch --role a=1 -- prog --help"));
  EXPECT_EQ(refused("launch --workers 2 prog --epochs 3"),
            "[cli] trireme launch has no option --epochs, and no -- stands before 'prog'; try: "
            "trireme launch ... -- prog --epochs ...");
}

TEST(CommandLine, AsksForDashesOnlyBeforeAProgramme) {
  EXPECT_THAT(refused("help train --workers 2"), Not(HasSubstr("no -- stands")));
  EXPECT_THAT(refused("data audit runs/a --pigeon"), Not(HasSubstr("no -- stands")));
}

TEST(CommandLine, ASettingTakesOneValue) {
  EXPECT_NO_THROW(parse("train --set optimizer.lr=1 examples/digits.yaml"));
  EXPECT_THAT(refused("train x.yaml --set optimizer.lr=1 data.batch=2"),
              EndsWith("; try: --set data.batch=2"));
}

TEST(CommandLine, PrintsTheHelpOfACommand) {
  EXPECT_THAT(printed_by("help ckpt inspect"),
              AllOf(HasSubstr("Usage: trireme ckpt inspect [OPTIONS] path"), HasSubstr("--json")));
  EXPECT_EQ(printed_by("help ckpt inspect"), printed_by("ckpt inspect --help"));
  EXPECT_EQ(printed_by("help train"), printed_by("train -h"));
  EXPECT_EQ(printed_by("help"), printed_by("--help"));
  EXPECT_THAT(printed_by("help ckpt"), HasSubstr("Usage: trireme ckpt [OPTIONS] SUBCOMMAND"));
  EXPECT_THAT(printed_by("help help"), HasSubstr("trireme help"));
  // The help is what the user needs, whatever else the words have.
  EXPECT_EQ(printed_by("train --wrkers --help"), printed_by("help train"));
  EXPECT_EQ(printed_by("--help --workers"), printed_by("help"));
  EXPECT_NE(printed_by("--version"), "");
}

TEST(CommandLine, NamesTheNearestCommandToHelpWith) {
  const auto refused_help = [](const std::string& line) {
    return message_of(ErrorCode::invalid_argument, [&] { printed_by(line); });
  };
  EXPECT_THAT(refused_help("help trian"), EndsWith("'trian'; try: trireme train"));
  EXPECT_THAT(refused_help("help ckpt inspct"), EndsWith("; try: trireme ckpt inspect"));
  EXPECT_THAT(refused_help("help train x"),
              EndsWith("trireme train has no command 'x'; try: trireme help train"));
  EXPECT_THAT(refused("trian --help"), EndsWith("; try: trireme train"));
}

// A word of the user must not break the message.
TEST(CommandLine, ShortensAndCleansWords) {
  const std::string message = refused(std::string(500, 'x'));
  EXPECT_LT(message.size(), 200U);
  CommandLine app("trireme", "All commands");
  add_commands(app);
  EXPECT_THAT(message_of(ErrorCode::invalid_argument, [&] { app.parse({"tr\nain\x1b[1m"}); }),
              HasSubstr("'tr?ain?[1m'"));
}

void for_each_command(const KnownCommand& command,
                      const std::function<void(const KnownCommand&)>& visit) {
  visit(command);
  for (const KnownCommand& below : command.commands) for_each_command(below, visit);
}

TEST(CommandLine, EveryCommandEndsItsHelpWithExamplesThatParse) {
  CommandLine app("trireme", "All commands");
  add_commands(app);
  int commands = 0;
  for_each_command(app.known(), [&](const KnownCommand& command) {
    ++commands;
    ASSERT_FALSE(command.examples.empty()) << command.path;
    EXPECT_EQ((command.examples.front() + " ").rfind(command.path + " ", 0), 0U)
        << "another command's example: " << command.examples.front();
    for (const std::string& example : command.examples)
      EXPECT_NO_THROW(parse(example.substr(std::string("trireme ").size()))) << example;
    const std::string help =
        printed_by(command.path.substr(std::string("trireme").size()) + " --help");
    EXPECT_THAT(help, EndsWith(command.examples.back() + "\n")) << command.path;
  });
  EXPECT_GT(commands, 15);
}

}  // namespace
}  // namespace trireme::cli::command_line_test
