#include "observe/frontier.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "base/errors.h"

namespace snug {
namespace {

// A range of numbers with round ends, divided by round marks.
struct Axis {
  double low = 0, high = 1, step = 1;

  double share(double value) const { return (value - low) / (high - low); }
  std::vector<double> marks() const {
    std::vector<double> values;
    for (double value = low; value <= high + step / 1000; value += step) values.push_back(value);
    return values;
  }
};

// Marks at 1, 2 or 5 times a power of ten, about `count` of them.
Axis axis_over(double low, double high, int count) {
  if (high <= low) high = low + std::max(std::abs(low), 1.0) * 0.1;
  const double raw = (high - low) / count, power = std::pow(10, std::floor(std::log10(raw)));
  double step = power;
  for (double factor : {1.0, 2.0, 5.0, 10.0})
    if (factor * power >= raw) {
      step = factor * power;
      break;
    }
  return {std::floor(low / step) * step, std::ceil(high / step) * step, step};
}

struct Unit {
  Bytes bytes;
  const char* name;
};
Unit unit_of(const Frontier& frontier) {
  Bytes largest;
  for (const auto* points : {&frontier.line, &frontier.policies})
    for (const FrontierPoint& point : *points) largest = std::max(largest, point.peak);
  return largest >= 2 * kGiB ? Unit{kGiB, "GiB"} : Unit{kMiB, "MiB"};
}

struct Axes {
  Unit unit;
  Axis memory, speed;  // units; per cent of keep-all

  double memory_of(const FrontierPoint& point) const {
    return static_cast<double>(point.peak.value) / static_cast<double>(unit.bytes.value);
  }
};

Axes axes_of(const Frontier& frontier) {
  require(!frontier.line.empty(), "frontier: no point on the line");
  Axes axes{.unit = unit_of(frontier), .memory = {}, .speed = {}};
  double low = axes.memory_of(frontier.line.front()), high = low, slowest = 1, fastest = 1;
  for (const auto* points : {&frontier.line, &frontier.policies})
    for (const FrontierPoint& point : *points) {
      low = std::min(low, axes.memory_of(point));
      high = std::max(high, axes.memory_of(point));
      slowest = std::min(slowest, frontier.speed(point));
      fastest = std::max(fastest, frontier.speed(point));
    }
  axes.memory = axis_over(low, high, 6);
  axes.speed = axis_over(100 * slowest - 1, 100 * fastest, 5);
  return axes;
}

// "4", "4.5", "0.25": as few digits as the axis' step needs.
std::string mark_text(double value, double step) {
  const int digits = step >= 1 ? 0 : static_cast<int>(std::ceil(-std::log10(step) - 1e-9));
  return fmt::format("{:.{}f}", value, digits);
}

char letter(size_t policy) { return static_cast<char>(policy < 26 ? 'A' + policy : 'z'); }

std::string escaped(std::string_view text) {
  std::string result;
  for (char c : text) switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      default:
        result += c;
    }
  return result;
}

}  // namespace

double Frontier::speed(const FrontierPoint& point) const {
  return point.step_seconds > 0 ? keep_all_seconds / point.step_seconds : 1;
}

std::string frontier_table(const Frontier& frontier) {
  std::string text = fmt::format("{:>12} {:>10} {:>9} {:>9}  {}\n", "memory", "s/update", "speed", "gap", "");
  const auto row = [&](const FrontierPoint& point, std::string_view note, bool has_gap) {
    fmt::format_to(std::back_inserter(text), "{:>12} {:>10.3g} {:>7.1f} % {:>9}  {}\n",
                   format_bytes(point.peak), point.step_seconds, 100 * frontier.speed(point),
                   has_gap ? fmt::format("{:.2f} %", 100 * point.gap) : "", note);
  };
  for (size_t i = 0; i < frontier.line.size(); ++i) {
    std::string note = i == 0 ? "smallest that works" : i + 1 == frontier.line.size() ? "everything kept" : "";
    const std::string& name = frontier.line[i].name;
    note += (note.empty() || name.empty() ? "" : ": ") + name;
    row(frontier.line[i], note, true);
  }
  for (size_t i = 0; i < frontier.policies.size(); ++i)
    row(frontier.policies[i], fmt::format("{} --recompute {}", letter(i), frontier.policies[i].name), false);
  return text;
}

std::string frontier_plot(const Frontier& frontier, int columns) {
  constexpr int kRows = 16, kLabel = 8, kUnit = 6;
  const Axes axes = axes_of(frontier);
  const int width = std::clamp(columns, 40, 160) - kLabel - kUnit;
  std::vector<std::string> cells(kRows + 1, std::string(static_cast<size_t>(width), ' '));
  const auto column = [&](double memory) {
    return std::clamp(static_cast<int>(std::lround(axes.memory.share(memory) * (width - 1))), 0, width - 1);
  };
  const auto row = [&](double speed) {
    return kRows - std::clamp(static_cast<int>(std::lround(axes.speed.share(100 * speed) * kRows)), 0, kRows);
  };
  const auto put = [&](int r, int c, char mark) {
    cells[static_cast<size_t>(r)][static_cast<size_t>(c)] = mark;
  };
  // A budget buys its plan up to the next point's memory: steps.
  for (size_t i = 0; i < frontier.line.size(); ++i) {
    const int r = row(frontier.speed(frontier.line[i])), from = column(axes.memory_of(frontier.line[i]));
    const int to = i + 1 < frontier.line.size() ? column(axes.memory_of(frontier.line[i + 1])) : width - 1;
    for (int c = from; c < to; ++c) put(r, c, '-');
    if (i + 1 < frontier.line.size())
      for (int up = row(frontier.speed(frontier.line[i + 1])); up < r; ++up) put(up, to, '|');
  }
  for (const FrontierPoint& point : frontier.line)
    put(row(frontier.speed(point)), column(axes.memory_of(point)), 'o');
  for (size_t i = 0; i < frontier.policies.size(); ++i)
    put(row(frontier.speed(frontier.policies[i])), column(axes.memory_of(frontier.policies[i])), letter(i));

  std::string text = fmt::format("{}\n{:>{}} % of keep-all speed\n", frontier.title, "", kLabel - 2);
  std::vector<std::string> labels(kRows + 1);
  for (double mark : axes.speed.marks())
    labels[static_cast<size_t>(row(mark / 100))] = mark_text(mark, axes.speed.step);
  for (size_t r = 0; r <= kRows; ++r) {
    std::string line = cells[r];
    line.erase(line.find_last_not_of(' ') + 1);
    text += fmt::format("{:>{}} |{}\n", labels[r], kLabel - 2, line);
  }
  std::string ticks(static_cast<size_t>(kLabel + width + 8), ' ');
  std::string axis = fmt::format("{:>{}}", "+", kLabel) + std::string(static_cast<size_t>(width), '-');
  for (double mark : axes.memory.marks()) {
    const std::string label = mark_text(mark, axes.memory.step);
    const auto at = static_cast<size_t>(kLabel + column(mark));
    axis[at] = '+';
    const size_t begin = at - std::min(at, label.size() / 2);
    ticks.replace(begin, label.size(), label);
  }
  ticks.erase(ticks.find_last_not_of(' ') + 1);
  text += axis + "\n" + ticks + fmt::format(" {}\n", axes.unit.name);
  for (size_t i = 0; i < frontier.policies.size(); ++i)
    text += fmt::format("{}{} {}", i == 0 ? "  " : "   ", letter(i), frontier.policies[i].name);
  return frontier.policies.empty() ? text : text + "   o chosen by the budget\n";
}

std::string frontier_svg(const Frontier& frontier) {
  constexpr double kWidth = 860, kHeight = 520, kLeft = 80, kRight = 40, kTop = 70, kBottom = 70;
  const Axes axes = axes_of(frontier);
  const auto x = [&](double memory) { return kLeft + axes.memory.share(memory) * (kWidth - kLeft - kRight); };
  const auto y = [&](double speed) {
    return kHeight - kBottom - axes.speed.share(100 * speed) * (kHeight - kTop - kBottom);
  };
  std::string svg;
  const auto out = std::back_inserter(svg);
  fmt::format_to(
      out,
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"system-ui, sans-serif\" font-size=\"14\">\n"
      "<title>{2}</title>\n<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n"
      "<text x=\"{3}\" y=\"32\" font-size=\"18\" font-weight=\"600\" fill=\"#1b1f24\">Memory against "
      "speed</text>\n"
      "<text x=\"{3}\" y=\"54\" fill=\"#57606a\">{2}</text>\n",
      kWidth, kHeight, escaped(frontier.title), kLeft);
  for (double mark : axes.speed.marks())
    fmt::format_to(out,
                   "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#e4e8ec\"/>"
                   "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\" fill=\"#57606a\">{5} %</text>\n",
                   kLeft, kWidth - kRight, y(mark / 100), kLeft - 10, y(mark / 100) + 5,
                   mark_text(mark, axes.speed.step));
  for (double mark : axes.memory.marks())
    fmt::format_to(out,
                   "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"#e4e8ec\"/>"
                   "<text x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"middle\" fill=\"#57606a\">{4}</text>\n",
                   x(mark), kTop, kHeight - kBottom, kHeight - kBottom + 22,
                   mark_text(mark, axes.memory.step));
  fmt::format_to(out,
                 "<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\" fill=\"#1b1f24\">planned peak of the "
                 "process, {}</text>\n"
                 "<text transform=\"translate(22 {:.1f}) rotate(-90)\" text-anchor=\"middle\" "
                 "fill=\"#1b1f24\">speed, % of "
                 "keeping everything</text>\n",
                 (kLeft + kWidth - kRight) / 2, kHeight - 22, axes.unit.name, (kTop + kHeight - kBottom) / 2);
  // Steps, and the area that they bound: what a budget can buy.
  std::string steps;
  for (size_t i = 0; i < frontier.line.size(); ++i) {
    const double px = x(axes.memory_of(frontier.line[i])), py = y(frontier.speed(frontier.line[i]));
    steps += i == 0 ? fmt::format("M{:.1f} {:.1f}", px, py) : fmt::format("H{:.1f}V{:.1f}", px, py);
  }
  const double base = kHeight - kBottom, end = kWidth - kRight;
  fmt::format_to(out, "<path d=\"{}H{}V{}H{:.1f}Z\" fill=\"#0b6e99\" fill-opacity=\"0.10\"/>\n", steps, end,
                 base, x(axes.memory_of(frontier.line.front())));
  fmt::format_to(out, "<path d=\"{}H{}\" fill=\"none\" stroke=\"#0b6e99\" stroke-width=\"2.5\"/>\n", steps,
                 end);
  for (const FrontierPoint& point : frontier.line)
    fmt::format_to(out,
                   "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"#0b6e99\"><title>{}, {:.1f} % of "
                   "keep-all speed, gap "
                   "{:.2f} %</title></circle>\n",
                   x(axes.memory_of(point)), y(frontier.speed(point)), format_bytes(point.peak),
                   100 * frontier.speed(point), 100 * point.gap);
  // Labels of points that lie close to one another go below each other.
  std::vector<std::pair<double, double>> taken;
  for (const FrontierPoint& point : frontier.policies) {
    const double px = x(axes.memory_of(point)), py = y(frontier.speed(point));
    double label = py + 18;
    const auto crowded = [&] {
      return std::any_of(taken.begin(), taken.end(), [&](const auto& other) {
        return std::abs(other.first - px) < 90 && std::abs(other.second - label) < 15;
      });
    };
    while (crowded()) label += 15;
    taken.emplace_back(px, label);
    const char* anchor = px > kWidth - kRight - 80 ? "end" : "start";
    fmt::format_to(out,
                   "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"9\" height=\"9\" fill=\"#c4451c\"><title>{}: {}, "
                   "{:.1f} %</title>"
                   "</rect><text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" font-size=\"12\" "
                   "fill=\"#c4451c\">{}</text>\n",
                   px - 4.5, py - 4.5, escaped(point.name), format_bytes(point.peak),
                   100 * frontier.speed(point), px, label, anchor, escaped(point.name));
  }
  return svg + "</svg>\n";
}

}  // namespace snug
