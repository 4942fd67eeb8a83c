// The words of `trireme doctor` about the variables of launchers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <trireme/membership/launcher_table.h>
#include <map>

namespace trireme::membership::explanation_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

Explanation explain(std::map<std::string, std::string> variables) {
  return explain_identity(Environment(std::move(variables)));
}

TEST(Explanation, NamesTheVariablesThatDecided) {
  const Explanation of_mpirun = explain({{"OMPI_COMM_WORLD_RANK", "1"},
                                         {"OMPI_COMM_WORLD_SIZE", "2"},
                                         {"OMPI_MCA_ess_base_jobid", "17"},
                                         {"HOME", "/root"}});
  EXPECT_EQ(of_mpirun.title, "mpirun");
  EXPECT_THAT(of_mpirun.decided, ElementsAre("OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2",
                                             "OMPI_MCA_ess_base_jobid=17"));
  EXPECT_THAT(of_mpirun.ignored, IsEmpty());
}

TEST(Explanation, NamesThoseOfOtherLaunchersAndTheOneThatCountsMore) {
  const Explanation explanation = explain({{"RANK", "0"},
                                           {"WORLD_SIZE", "2"},
                                           {"LOCAL_RANK", "0"},
                                           {"MASTER_PORT", "1"},
                                           {"SLURM_PROCID", "0"},
                                           {"SLURM_JOB_ID", "4711"},
                                           {"JOB_COMPLETION_INDEX", "1"}});
  EXPECT_EQ(explanation.title, "torchrun");
  ASSERT_EQ(explanation.ignored.size(), 2u);
  EXPECT_EQ(explanation.ignored[0].title, "Kubernetes");
  EXPECT_THAT(explanation.ignored[0].variables, ElementsAre("JOB_COMPLETION_INDEX=1"));
  EXPECT_EQ(explanation.ignored[1].title, "srun");
  // MASTER_PORT, which srun's tasks read too, is named once.
  EXPECT_THAT(explanation.ignored[1].variables,
              ElementsAre("SLURM_JOB_ID=4711", "SLURM_PROCID=0"));
  EXPECT_THAT(explanation.ignored[1].why, HasSubstr("variables of torchrun count more"));
}

TEST(Explanation, SaysWhyAPodIsAlone) {
  const std::string text =
      explain({{"JOB_COMPLETION_INDEX", "5"}, {"KUBERNETES_SERVICE_HOST", "10.96.0.1"}})
          .describe();
  EXPECT_THAT(text,
              AllOf(HasSubstr("decided by no variable"),
                    HasSubstr("ignored JOB_COMPLETION_INDEX=5 (Kubernetes): nothing says how "
                              "many pods there are"),
                    HasSubstr("WORLD_SIZE and MASTER_ADDR")));
}

TEST(Explanation, SaysWhyAShellInAnAllocationOfSlurmIsAlone) {
  EXPECT_THAT(explain({{"SLURM_JOB_ID", "1"}, {"SLURM_NTASKS", "8"}}).describe(),
              AllOf(HasSubstr("SLURM_JOB_ID=1, SLURM_NTASKS=8 (srun)"),
                    HasSubstr("no task of a step with several tasks")));
}

TEST(Explanation, CutsLongValuesAndNeverShowsTheToken) {
  const std::string text = explain({{"TF_CONFIG", std::string(500, 'x')},
                                    {"TRIREME_JOB_TOKEN", "a secret of this job"}})
                               .describe();
  EXPECT_THAT(text, AllOf(HasSubstr("xxx... (TF_CONFIG)"), Not(HasSubstr("secret"))));
  EXPECT_LT(text.size(), 200u);
}

TEST(Explanation, NamesAnEmptyVariableThatDoesNotCount) {
  EXPECT_THAT(explain({{"TF_CONFIG", ""}}).describe(),
              HasSubstr("ignored TF_CONFIG= (TF_CONFIG): it is empty"));
  EXPECT_EQ(explain({}).describe(), "decided by no variable: no launcher's variables make a job");
}

}  // namespace
}  // namespace trireme::membership::explanation_test
