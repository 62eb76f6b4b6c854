#include "data/prepare_samples.h"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <variant>

#include "base/errors.h"

namespace snug {
namespace {

constexpr size_t kChunkRows = 64;
constexpr int64_t kChunkBytes = int64_t{256} << 10;
constexpr double kProgressSeconds = 0.2;

// A document's end is no more than where its text was cut; what has an answer in it must not be cut before that.
bool is_document(const Row& row) {
  const auto* tokens = std::get_if<TokenRow>(&row);
  return std::holds_alternative<TextRow>(row) || (tokens != nullptr && tokens->labels.empty());
}

bool began_with_answer(const Row& row) {
  const auto* chat = std::get_if<ChatRow>(&row);
  return chat != nullptr && chat->began_with_answer;
}

// One row on its way: `sample` is made from `placed`; where none can be, the row is skipped, too.
struct RowOnItsWay {
  PlacedRow placed;
  SkippedRows skipped;  // before it, and itself
  std::optional<Sample> sample = std::nullopt;
};

struct Chunk {
  enum class State : uint8_t { kFree, kRead, kTaken, kEncoded };
  State state = State::kFree;
  std::vector<RowOnItsWay> rows;
  std::exception_ptr failure;  // after these rows
  SkippedRows skipped_behind;
  int64_t bytes_read = 0;
  bool is_last = false;
};

// What the threads share. The reading one may outlive the call, so it owns this.
class Pipeline {
 public:
  explicit Pipeline(const Preparation& preparation)
      : preparation_(preparation), chunks_(2 * static_cast<size_t>(preparation.threads) + 2) {}

  // On threads of their own:
  void read() {
    for (size_t index = 0;; ++index) {
      Chunk& chunk = chunks_[index % chunks_.size()];
      if (!wait_for(chunk, Chunk::State::kFree)) return;
      chunk.rows.clear();
      chunk.skipped_behind = {};
      try {
        for (int64_t bytes = 0; chunk.rows.size() < kChunkRows && bytes < kChunkBytes;) {
          std::optional<PlacedRow> row = preparation_.next();
          if (!row) {
            chunk.is_last = true;
            chunk.skipped_behind = preparation_.take_skipped();
            break;
          }
          bytes += row->bytes;
          chunk.rows.push_back({std::move(*row), preparation_.take_skipped()});
        }
      } catch (...) {
        chunk.failure = std::current_exception();
        chunk.is_last = true;
      }
      chunk.bytes_read = preparation_.bytes_read();
      const bool is_last = chunk.is_last;
      set(chunk, Chunk::State::kRead);
      if (is_last) return;
    }
  }

  void encode() {
    EncodeRow encode_row;
    std::exception_ptr no_encoder;
    try {
      encode_row = preparation_.encoder();
    } catch (...) {
      no_encoder = std::current_exception();
    }
    while (true) {
      Chunk* chunk = nullptr;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] {
          return stops_ || all_taken_ || chunks_[next_ % chunks_.size()].state == Chunk::State::kRead;
        });
        if (stops_ || all_taken_) return;
        chunk = &chunks_[next_++ % chunks_.size()];
        chunk->state = Chunk::State::kTaken;
        all_taken_ = chunk->is_last;
      }
      encode_chunk(*chunk, encode_row, no_encoder);
      set(*chunk, Chunk::State::kEncoded);
    }
  }

  // On the caller's thread:
  void write(SampleWriter& writer) {
    const auto begin = std::chrono::steady_clock::now();
    double told = 0;
    PreparationProgress progress{.rows = writer.kept().rows,
                                 .samples = writer.kept().samples,
                                 .ids = writer.kept().ids,
                                 .bad_rows = writer.kept().bad_rows,
                                 .all_bytes = preparation_.all_bytes,
                                 .kept_bytes = begin_bytes_};
    const auto skip = [&](const SkippedRows& rows) {
      writer.add_bad_rows(rows);
      progress.bad_rows += rows.count;
      progress.rows += rows.count;
    };
    for (size_t index = 0;; ++index) {
      Chunk& chunk = chunks_[index % chunks_.size()];
      wait_for_samples(chunk);
      for (const RowOnItsWay& row : chunk.rows) {
        skip(row.skipped);
        if (!row.sample) continue;
        const RowPosition& next = row.placed.next;
        writer.add(row.sample->ids, row.sample->supervised, is_document(row.placed.row),
                   {next.file, next.byte, next.row}, began_with_answer(row.placed.row));
        ++progress.rows;
        ++progress.samples;
        progress.ids += static_cast<int64_t>(row.sample->ids.size());
      }
      if (chunk.failure) std::rethrow_exception(chunk.failure);
      skip(chunk.skipped_behind);
      progress.bytes = chunk.bytes_read;
      progress.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      if (preparation_.progress && (chunk.is_last || progress.seconds - told >= kProgressSeconds)) {
        preparation_.progress(progress);
        told = progress.seconds;
      }
      if (chunk.is_last) return;
      set(chunk, Chunk::State::kFree);
    }
  }
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    changed_.notify_all();
  }
  bool reader_answers() const { return reader_answers_; }

 private:
  // Waits until the chunk is in that state; false when everything stops. Without a limit: who waits here is told to stop before the
  // caller's thread goes.
  bool wait_for(Chunk& chunk, Chunk::State state) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stops_ || chunk.state == state; });
    return !stops_;
  }
  // The caller's thread: waits for the chunk's samples. The time counts in which nothing was read.
  void wait_for_samples(Chunk& chunk) {
    const std::chrono::duration<double> limit(preparation_.limit_seconds);
    std::unique_lock lock(mutex_);
    const auto has_samples = [&] { return chunk.state == Chunk::State::kEncoded; };
    while (!changed_.wait_for(lock, limit, has_samples))
      if (chunk.state == Chunk::State::kFree) {
        reader_answers_ = false;
        throw_user(
            ExitCode::kIo,
            "{}: no row came within {:.0f} s: the thread that reads it does not answer; expected its disk or "
            "network mount to be there",
            preparation_.source, preparation_.limit_seconds);
      }
  }
  void set(Chunk& chunk, Chunk::State state) {
    {
      const std::lock_guard lock(mutex_);
      chunk.state = state;
    }
    changed_.notify_all();
  }

  void encode_chunk(Chunk& chunk, const EncodeRow& encode_row, const std::exception_ptr& no_encoder) const {
    for (size_t i = 0; i < chunk.rows.size(); ++i) {
      RowOnItsWay& row = chunk.rows[i];
      try {
        if (no_encoder) std::rethrow_exception(no_encoder);
        try {
          row.sample = encode_row(row.placed.row, row.placed.place);
        } catch (const UserError& error) {
          if (!preparation_.skip_bad_rows || error.code() != ExitCode::kBadFile) throw;
          row.skipped.add(error.what());
        }
      } catch (...) {
        chunk.failure = std::current_exception();
        chunk.is_last = true;
        chunk.rows.resize(i);
      }
    }
  }

  const Preparation preparation_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Chunk> chunks_;  // used in turn
  size_t next_ = 0;            // to be encoded
  bool all_taken_ = false, stops_ = false;
  bool reader_answers_ = true;
  const int64_t begin_bytes_ = preparation_.bytes_read();
};

}  // namespace

std::optional<double> PreparationProgress::seconds_left() const {
  const int64_t done = bytes - kept_bytes;
  if (seconds < 1 || done <= 0 || all_bytes < bytes) return std::nullopt;
  return seconds / static_cast<double>(done) * static_cast<double>(all_bytes - bytes);
}

void prepare_samples(SampleWriter& writer, const Preparation& preparation) {
  require(preparation.threads >= 1, "{} encoding threads", preparation.threads);
  const auto pipeline = std::make_shared<Pipeline>(preparation);
  std::optional<Worker> reader;
  std::list<Worker> encoders;
  const auto end = [&] {
    pipeline->stop();
    encoders.clear();
    // Who has not answered yet is not waited for once more.
    if (reader) reader->end_within(pipeline->reader_answers() ? preparation.limit_seconds : 0);
  };
  try {
    reader.emplace([pipeline] { pipeline->read(); });
    for (int i = 0; i < preparation.threads; ++i) encoders.emplace_back([pipeline] { pipeline->encode(); });
    pipeline->write(writer);
  } catch (...) {
    end();
    throw;
  }
  end();
}

}  // namespace snug
