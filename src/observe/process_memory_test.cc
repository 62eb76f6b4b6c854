#include "observe/process_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

namespace snug {
namespace {

// A /proc and /sys of the test's own; removed at the end.
class Tree {
 public:
  explicit Tree(const std::map<std::string, std::string>& files) {
    std::string name = (std::filesystem::temp_directory_path() / "snug-tree-XXXXXX").string();
    root_ = mkdtemp(name.data());
    for (const auto& [path, text] : files) {
      const std::filesystem::path file = root_ + path;
      std::filesystem::create_directories(file.parent_path());
      std::ofstream(file) << text;
    }
  }
  ~Tree() { std::filesystem::remove_all(root_); }
  const std::string& root() const { return root_; }

 private:
  std::string root_;
};

constexpr const char* kStatus =
    "Name:\tsnug\nVmPeak:\t  999 kB\nVmHWM:\t   3000 kB\nVmRSS:\t   2000 kB\nRssAnon:\t   1500 "
    "kB\nRssFile:\t    500 kB\n"
    "VmPTE:\t     40 kB\nThreads:\t5\nCpus_allowed:\tff\nCpus_allowed_list:\t0-3,8,10-11\n";
constexpr const char* kMachine = "MemTotal:       24000000 kB\nMemFree:  1 kB\nMemAvailable:   20000000 kB\n";
constexpr const char* kMountV2 =
    "25 1 8:1 / / rw - ext4 /dev/sda1 rw\n31 25 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 "
    "rw,nsdelegate\n";
constexpr const char* kMountV1 =
    "30 25 0:24 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n"
    "31 25 0:25 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "32 25 0:26 / /sys/fs/cgroup/cpuset rw shared:9 - cgroup cgroup rw,cpuset\n";

TEST(ProcessMemory, ReadsStatus) {
  const Tree tree({{"/proc/self/status", kStatus}, {"/proc/meminfo", kMachine}});
  const ProcessMemory memory = process_memory(tree.root());
  EXPECT_EQ(memory.resident, Bytes(2000 * 1024));
  EXPECT_EQ(memory.peak_resident, Bytes(3000 * 1024));
  EXPECT_EQ(memory.page_tables, Bytes(40 * 1024));
  EXPECT_EQ(memory.anonymous, Bytes(1500 * 1024));
  EXPECT_EQ(memory.file_backed, Bytes(500 * 1024));
  EXPECT_EQ(memory.threads, 5);
  EXPECT_EQ(memory.peak(), Bytes(3040 * 1024));
  EXPECT_EQ(kernel_stacks(5), Bytes(80 * 1024));
  EXPECT_EQ(machine_memory(tree.root()).total, Bytes(int64_t{24000000} * 1024));
  EXPECT_EQ(machine_memory(tree.root()).available, Bytes(int64_t{20000000} * 1024));
}

TEST(ProcessMemory, ReadsThisProcess) {
  const ProcessMemory memory = process_memory();
  EXPECT_GT(memory.resident, Bytes(100000));
  EXPECT_GE(memory.peak_resident.value, memory.resident.value - (1 << 20));  // the kernel counts in batches
  EXPECT_GT(memory.page_tables.value, 0);
  EXPECT_GE(memory.threads, 1);
  EXPECT_GE(default_threads(), 1);
  EXPECT_GT(memory_allowance().bytes, memory.resident);
}

TEST(ProcessMemory, MissesNothingItCannotRead) {
  const Tree empty({});
  EXPECT_EQ(process_memory(empty.root()).resident, Bytes(0));
  EXPECT_EQ(machine_memory(empty.root()).total, Bytes(0));
  EXPECT_TRUE(memory_groups(empty.root()).empty());
  EXPECT_EQ(default_threads(empty.root()), 1);
}

TEST(MemoryGroups, ReadsVersion2WithAllAncestors) {
  const Tree tree({{"/proc/self/mountinfo", kMountV2},
                   {"/proc/self/cgroup", "0::/user/job\n"},
                   {"/sys/fs/cgroup/user/job/memory.max", "max\n"},
                   {"/sys/fs/cgroup/user/job/memory.high", "3000000\n"},
                   {"/sys/fs/cgroup/user/job/memory.current", "500000\n"},
                   {"/sys/fs/cgroup/user/memory.max", "2000000\n"},
                   {"/sys/fs/cgroup/user/memory.high", "max\n"},
                   {"/sys/fs/cgroup/user/memory.current", "1500000\n"},
                   {"/sys/fs/cgroup/user/memory.stat", "anon 7\ninactive_file 400000\nactive_file 9\n"}});
  const auto groups = memory_groups(tree.root());
  ASSERT_EQ(groups.size(), 2u);  // the top has no limit
  EXPECT_EQ(groups[0].path, "/sys/fs/cgroup/user/job");
  EXPECT_EQ(groups[0].limit, Bytes(3000000));
  EXPECT_EQ(groups[0].usage, Bytes(500000));
  EXPECT_EQ(groups[1].path, "/sys/fs/cgroup/user");
  EXPECT_EQ(groups[1].limit, Bytes(2000000));
  EXPECT_EQ(groups[1].usage, Bytes(1100000));  // 1,500,000 less the page cache that can go
}

TEST(MemoryGroups, ReadsVersion1) {
  const Tree tree({{"/proc/self/mountinfo", kMountV1},
                   {"/proc/self/cgroup", "4:memory:/job\n3:cpuset:/\n1:cpu,cpuacct:/\n"},
                   {"/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1000000\n"},
                   {"/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "600000\n"},
                   {"/sys/fs/cgroup/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 100000\n"},
                   {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"},
                   {"/sys/fs/cgroup/memory/memory.usage_in_bytes", "700000\n"}});
  const auto groups = memory_groups(tree.root());
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].limit, Bytes(1000000));
  EXPECT_EQ(groups[0].usage, Bytes(500000));
}

// A container sees its own part of the hierarchy as the top of the mount, but may be told its path on the
// host.
TEST(MemoryGroups, UnderstandsContainers) {
  const std::string mount = "30 25 0:24 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
  const std::map<std::string, std::string> limit = {
      {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "5000\n"},
      {"/sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "4000\n"}};
  auto files = limit;
  files["/proc/self/mountinfo"] = mount;
  for (const auto& [path, expected] :
       std::map<std::string, std::vector<int64_t>>{{"/docker/abc", {5000}},
                                                   {"/docker/abc/inner", {4000, 5000}},
                                                   {"/elsewhere", {5000}},
                                                   {"/../x", {5000}}}) {
    files["/proc/self/cgroup"] = "4:memory:" + path + "\n";
    const Tree tree(files);
    std::vector<int64_t> limits;
    for (const MemoryGroup& group : memory_groups(tree.root())) limits.push_back(group.limit.value);
    EXPECT_EQ(limits, expected) << path;
  }
}

TEST(MemoryAllowance, IsTheLeastThatIsLeft) {
  std::map<std::string, std::string> files = {{"/proc/self/status", kStatus},
                                              {"/proc/meminfo", kMachine},
                                              {"/proc/self/mountinfo", kMountV2},
                                              {"/proc/self/cgroup", "0::/job\n"},
                                              {"/sys/fs/cgroup/job/memory.max", "max"}};
  const int64_t own = (2000 + 40 + 5 * 16) * 1024;
  {
    const Tree tree(files);
    EXPECT_EQ(memory_allowance(tree.root()).bytes, Bytes(int64_t{20000000} * 1024 + own));
    EXPECT_EQ(memory_allowance(tree.root()).source, "machine");
  }
  files["/sys/fs/cgroup/job/memory.max"] = "1000000000";
  files["/sys/fs/cgroup/job/memory.current"] = std::to_string(own + 300);
  {
    const Tree tree(files);
    EXPECT_EQ(memory_allowance(tree.root()).bytes,
              Bytes(1000000000 - 300));  // what is this process' own is no loss
    EXPECT_EQ(memory_allowance(tree.root()).source, "control group /sys/fs/cgroup/job");
  }
  files["/sys/fs/cgroup/job/memory.max"] = "1000";
  files["/sys/fs/cgroup/job/memory.current"] = std::to_string(own + 5000);
  const Tree tree(files);
  EXPECT_EQ(memory_allowance(tree.root()).bytes, Bytes(0));
}

TEST(DefaultThreads, FollowsAffinityAndQuota) {
  std::map<std::string, std::string> files = {
      {"/proc/self/status", kStatus}, {"/proc/self/mountinfo", kMountV2}, {"/proc/self/cgroup", "0::/a/b\n"}};
  EXPECT_EQ(default_threads(Tree(files).root()), 7);  // 0-3, 8, 10-11
  files["/sys/fs/cgroup/a/b/cpu.max"] = "max 100000\n";
  EXPECT_EQ(default_threads(Tree(files).root()), 7);
  files["/sys/fs/cgroup/a/cpu.max"] = "350000 100000\n";
  EXPECT_EQ(default_threads(Tree(files).root()), 3);
  files["/sys/fs/cgroup/a/b/cpu.max"] = "50000 100000\n";
  EXPECT_EQ(default_threads(Tree(files).root()), 1);

  std::map<std::string, std::string> version_1 = {
      {"/proc/self/status", kStatus},
      {"/proc/self/mountinfo", kMountV1},
      {"/proc/self/cgroup", "2:cpu,cpuacct:/a\n"},
      {"/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "-1\n"},
      {"/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n"}};
  EXPECT_EQ(default_threads(Tree(version_1).root()), 7);
  version_1["/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us"] = "200000\n";
  EXPECT_EQ(default_threads(Tree(version_1).root()), 2);
}

// A control group may be smaller than the margin: then nothing is left, and not less than nothing.
TEST(ProcessMemory, KeepsAMarginWithoutNegativeBudgets) {
  EXPECT_EQ(margin_below(10 * kGiB), 512 * kMiB);
  EXPECT_EQ(budget_within(10 * kGiB), 9 * kGiB + 512 * kMiB);
  EXPECT_EQ(margin_below(57 * kMiB), 64 * kMiB);
  EXPECT_EQ(budget_within(57 * kMiB), Bytes(0));
  EXPECT_EQ(budget_within(Bytes(0)), Bytes(0));
  EXPECT_EQ(budget_within(65 * kMiB), kMiB);
}

}  // namespace
}  // namespace snug
