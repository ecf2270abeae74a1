// SPDX-License-Identifier: MIT
// The memory that the ranks of one group share: control words, mailboxes, staging, arenas for
// buffers that need no copy. A sealed memfd without a name, or memory of this process for ranks
// that are threads. Only the layout and who failed first; the protocol is shared_memory.hpp's.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <halfstep/core/available_memory.hpp>
#include <halfstep/core/config.hpp>
#include <halfstep/core/error.hpp>
#include <halfstep/core/views.hpp>
#include <halfstep/dist/transport/transport.hpp>

namespace halfstep::inline HALFSTEP_CONFIG::dist {

namespace detail {

/// Adjacent lines are fetched in pairs, so what one rank writes stands on two of its own.
inline constexpr std::int64_t line_pair = 128;

static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              sizeof(std::atomic<std::uint64_t>) == 8);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free &&
              sizeof(std::atomic<std::uint32_t>) == 4);

/// Where a rank's data for an operation lies.
struct Slot {
  Label label;
  std::int64_t offset = -1;  ///< in the segment; -1: not in it
};

/// What one rank writes and the others read. `bell` alone has many writers, and only sleepers look.
struct RankControl {
  alignas(line_pair) std::atomic<std::uint64_t> phase{0};  ///< barriers that this rank has come to
  alignas(line_pair) std::atomic<std::uint32_t> asleep{0};
  alignas(line_pair) std::atomic<std::uint32_t> bell{0};
  alignas(line_pair) Slot slots[2];  ///< of operation n in slot n % 2
};

/// Bytes on their way from one rank to another: a ring that one writes and one reads.
struct Mailbox {
  static constexpr std::uint64_t capacity = std::uint64_t{128} << 10;
  alignas(line_pair) std::atomic<std::uint64_t> written{0};
  alignas(line_pair) std::atomic<std::uint64_t> read{0};
  alignas(line_pair) std::byte data[capacity];
};

struct SegmentHeader {
  static constexpr std::uint64_t expected = 0x3170'6574'7366'6C61;
  std::uint64_t magic = expected;
  std::int64_t ranks = 0;
  std::int64_t arena_bytes = 0;                             ///< per rank
  std::int64_t common_bytes = 0;                            ///< of all ranks together
  std::int64_t bytes = 0;                                   ///< of the whole segment
  alignas(line_pair) std::atomic<std::uint32_t> failed{0};  ///< 0 no, 1 being written, 2 yes
  std::int32_t failed_rank = -1;
  char failure[512] = {};
  alignas(line_pair) std::atomic<std::uint64_t> ended{0};  ///< a bit for each rank
};

}  // namespace detail

/// Owns one mapping of the segment.
class Segment {
 public:
  /// One chunk of a buffer that is copied in and out, and the largest data that travels beside the
  /// control words, in bytes.
  static constexpr std::int64_t stage_bytes = std::int64_t{64} << 10;
  static constexpr std::int64_t inline_bytes = std::int64_t{4} << 10;

  /// In the memory of this process: ranks are threads.
  /// @throws as `create` does.
  [[nodiscard]] static Segment in_process(
      int ranks, std::int64_t arena_bytes, std::int64_t common_bytes = 0,
      std::optional<std::int64_t> available = core::available_memory()) {
    const std::int64_t bytes = checked_bytes(ranks, arena_bytes, common_bytes, available);
    return Segment(-1, bytes, ranks, arena_bytes, common_bytes);
  }
  /// A memfd for the processes that inherit it or open it by number. Its memory is reserved here
  /// and its size sealed, so that no access to it can fail later.
  /// @throws MemoryError if that is more than the system has left, OptionError for sizes out of
  /// range.
  [[nodiscard]] static Segment create(
      int ranks, std::int64_t arena_bytes, std::int64_t common_bytes = 0,
      std::optional<std::int64_t> available = core::available_memory()) {
    const std::int64_t bytes = checked_bytes(ranks, arena_bytes, common_bytes, available);
    const int file = memfd_create("halfstep", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0) refuse("memfd_create", bytes);
    if (ftruncate(file, bytes) != 0 || fallocate(file, 0, 0, bytes) != 0 ||
        fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
      const int error = errno;
      close(file);
      errno = error;
      refuse("reserving it", bytes);
    }
    return Segment(file, bytes, ranks, arena_bytes, common_bytes);
  }
  /// Maps the segment of that file and takes ownership of the file.
  /// @throws FileError if it is none, or another version's.
  [[nodiscard]] static Segment attach(int file) {
    struct stat status {};
    if (fstat(file, &status) != 0 ||
        status.st_size < static_cast<off_t>(sizeof(detail::SegmentHeader))) {
      core::fail<FileError>("dist::Segment: file ", file, " is no segment of ranks. ",
                            "Was this process started by dist::launch?");
    }
    Segment segment(file, status.st_size);
    const detail::SegmentHeader& header = segment.header();
    if (header.magic != detail::SegmentHeader::expected || header.bytes != status.st_size) {
      core::fail<FileError>("dist::Segment: file ", file,
                            " was not made by this version of halfstep. ",
                            "Are all ranks the same program?");
    }
    return segment;
  }

  Segment(Segment&& other) noexcept
      : file_(std::exchange(other.file_, -1)),
        bytes_(std::exchange(other.bytes_, 0)),
        data_(std::exchange(other.data_, nullptr)) {}
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  Segment& operator=(Segment&&) = delete;
  ~Segment() {
    if (data_ != nullptr) munmap(data_, static_cast<std::size_t>(bytes_));
    if (file_ >= 0) close(file_);
  }

  /// -1 if it is in the memory of this process.
  [[nodiscard]] int file() const { return file_; }
  [[nodiscard]] int ranks() const { return static_cast<int>(header().ranks); }
  [[nodiscard]] std::span<std::byte> bytes() const {
    return {data_, static_cast<std::size_t>(bytes_)};
  }
  /// What buffers of that rank are taken from.
  [[nodiscard]] std::span<std::byte> arena(int rank) const {
    return {data_ + arena_offset(ranks()) + rank * header().arena_bytes,
            static_cast<std::size_t>(header().arena_bytes)};
  }
  /// What buffers of all ranks together are taken from: behind the last arena.
  [[nodiscard]] std::span<std::byte> common() const {
    return bytes().last(static_cast<std::size_t>(header().common_bytes));
  }
  [[nodiscard]] std::byte* stage(int rank, std::uint64_t which) const {
    return data_ + stage_offset(ranks()) +
           (2 * rank + static_cast<std::int64_t>(which % 2)) * stage_bytes;
  }
  [[nodiscard]] std::byte* inline_data(int rank, std::uint64_t which) const {
    return data_ + inline_offset(ranks()) +
           (2 * rank + static_cast<std::int64_t>(which % 2)) * inline_bytes;
  }
  [[nodiscard]] detail::RankControl& control(int rank) const {
    return at<detail::RankControl>(control_offset() +
                                   rank * std::int64_t{sizeof(detail::RankControl)});
  }
  [[nodiscard]] detail::Mailbox& mailbox(int from, int to) const {
    return at<detail::Mailbox>(mailbox_offset(ranks()) +
                               (from * ranks() + to) * std::int64_t{sizeof(detail::Mailbox)});
  }

  /// Says that a rank failed, if none did before, and wakes everybody. Safe in any process that
  /// maps the segment.
  void fail(int rank, std::string_view what) const {
    detail::SegmentHeader& head = header();
    std::uint32_t none = 0;
    if (!head.failed.compare_exchange_strong(none, 1)) return;
    head.failed_rank = rank;
    const std::size_t n = std::min(what.size(), sizeof head.failure - 1);
    std::memcpy(head.failure, what.data(), n);
    head.failure[n] = '\0';
    head.failed.store(2);
    for (int i = 0; i < ranks(); ++i)
      wake(i);
  }
  /// The rank that failed first and why; -1 if none did.
  [[nodiscard]] int failed_rank() const {
    return header().failed.load() == 2 ? header().failed_rank : -1;
  }
  [[nodiscard]] std::string failure() const { return failed_rank() < 0 ? "" : header().failure; }

  /// Says that a rank will come to no further meeting: who waits for it then hears so.
  void end(int rank) const {
    header().ended.fetch_or(std::uint64_t{1} << rank);
    for (int i = 0; i < ranks(); ++i)
      wake(i);
  }
  /// A bit for each rank that has ended.
  [[nodiscard]] std::uint64_t ended() const { return header().ended.load(); }

  /// Makes that rank look again at what it waits for.
  void wake(int rank) const {
    std::atomic<std::uint32_t>& bell = control(rank).bell;
    bell.fetch_add(1);
    // Not the private futex that std::atomic::notify uses: the sleeper is another process.
    syscall(SYS_futex, &bell, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  }

 private:
  Segment(int file, std::int64_t bytes) : file_(file), bytes_(bytes) {
    const int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
    void* const memory =
        mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, flags, file, 0);
    if (memory == MAP_FAILED) {
      const int error = errno;
      if (file >= 0) close(file);
      errno = error;
      refuse("mmap", bytes);
    }
    data_ = static_cast<std::byte*>(memory);
    static_cast<void>(madvise(data_, static_cast<std::size_t>(bytes), MADV_DONTDUMP));
  }
  Segment(int file, std::int64_t bytes, int ranks, std::int64_t arena_bytes,
          std::int64_t common_bytes)
      : Segment(file, bytes) {
    auto* const head = new (data_) detail::SegmentHeader;
    head->ranks = ranks;
    head->arena_bytes = arena_bytes;
    head->common_bytes = common_bytes;
    head->bytes = bytes;
    for (int rank = 0; rank < ranks; ++rank)
      new (&control(rank)) detail::RankControl;
    // Mailboxes are zero already, which is how they begin; making them would touch all of them.
  }

  [[noreturn]] static void refuse(const char* what, std::int64_t bytes) {
    core::fail<MemoryError>(
        "dist::Segment: ", what, " failed for ", bytes, " bytes (", std::strerror(errno),
        "). Is the arena of each rank larger than this system's memory allows?");
  }
  [[nodiscard]] static std::int64_t checked_bytes(int ranks, std::int64_t arena_bytes,
                                                  std::int64_t common_bytes,
                                                  std::optional<std::int64_t> available) {
    const auto valid = [](std::int64_t bytes) {
      return bytes >= 0 && bytes <= std::int64_t{1} << 46 && bytes % detail::line_pair == 0;
    };
    if (ranks < 1 || ranks > max_ranks || !valid(arena_bytes) || !valid(common_bytes)) {
      core::fail<OptionError>("dist::Segment: ", ranks, " ranks with arenas of ", arena_bytes,
                              " bytes and ", common_bytes, " in common; wanted 1 to ", max_ranks,
                              " ranks and multiples of 128 bytes.");
    }
    const std::int64_t bytes = arena_offset(ranks) + ranks * arena_bytes + common_bytes;
    // Reserving more than there is would not fail: it would have other processes killed.
    core::require_memory(bytes,
                         core::text("dist::Segment of ", ranks, " ranks with arenas of ",
                                    arena_bytes, " bytes (LaunchOptions::arena_bytes) and ",
                                    common_bytes, " in common"),
                         available);
    return bytes;
  }
  [[nodiscard]] static constexpr std::int64_t control_offset() {
    return core::round_up(sizeof(detail::SegmentHeader), detail::line_pair);
  }
  [[nodiscard]] static constexpr std::int64_t inline_offset(std::int64_t ranks) {
    return control_offset() + ranks * std::int64_t{sizeof(detail::RankControl)};
  }
  [[nodiscard]] static constexpr std::int64_t stage_offset(std::int64_t ranks) {
    return inline_offset(ranks) + ranks * 2 * inline_bytes;
  }
  [[nodiscard]] static constexpr std::int64_t mailbox_offset(std::int64_t ranks) {
    return stage_offset(ranks) + ranks * 2 * stage_bytes;
  }
  [[nodiscard]] static constexpr std::int64_t arena_offset(std::int64_t ranks) {
    return core::round_up(
        mailbox_offset(ranks) + ranks * ranks * std::int64_t{sizeof(detail::Mailbox)}, 4096);
  }

  [[nodiscard]] detail::SegmentHeader& header() const { return at<detail::SegmentHeader>(0); }
  template <class T>
  [[nodiscard]] T& at(std::int64_t offset) const {
    return *std::launder(reinterpret_cast<T*>(data_ + offset));
  }

  int file_ = -1;
  std::int64_t bytes_ = 0;
  std::byte* data_ = nullptr;
};

}  // namespace halfstep::inline HALFSTEP_CONFIG::dist
