#include "lib/profile/report_page.h"

#include <algorithm>
#include <numeric>

#include "lib/base/bytes.h"
#include "lib/base/files.h"
#include "lib/profile/table.h"

namespace vlmtune {
namespace {

constexpr std::array<const char*, kNumMemoryCategories> kColours = {
    "#2563eb", "#dc2626", "#7c3aed", "#16a34a", "#84cc16", "#ea580c", "#0891b2", "#64748b", "#ca8a04"};

constexpr const char* kStyle = R"css(
:root { --page: #f7f8fa; --card: #fff; --ink: #1d2430; --soft: #667085; --line: #e4e7ec; color-scheme: light dark; }
@media (prefers-color-scheme: dark) { :root { --page: #12151b; --card: #1a1f28; --ink: #e6e9ef; --soft: #98a2b3; --line: #2b323e; } }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 28px 20px 40px; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 17px; margin: 30px 0 10px; }
section > div, table { background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
section > div { padding: 14px; overflow-x: auto; }
table { border-collapse: separate; border-spacing: 0; width: 100%; }
td, th { padding: 5px 12px; text-align: left; border-top: 1px solid var(--line); } tr:first-child > * { border-top: 0; }
td.n, th + th { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.bar { display: flex; height: 14px; border-radius: 3px; overflow: hidden; min-width: 160px; }
.key { display: inline-flex; align-items: center; gap: 6px; margin-right: 16px; color: var(--soft); font-size: 13px; }
.key i { width: 12px; height: 12px; border-radius: 3px; }
svg { display: block; width: 100%; height: auto; } svg text { fill: var(--soft); font-size: 11px; }
.good { color: #16a34a; font-weight: 600; } .bad { color: #dc2626; font-weight: 600; }
p { color: var(--soft); margin: 2px 0 8px; }
)css";

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text)
    result += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : std::string(1, c);
  return result;
}

int64_t sum(const CategoryBytes& bytes) { return std::accumulate(bytes.begin(), bytes.end(), int64_t{0}); }

/// One stacked bar; `whole` is what its full width stands for.
std::string bar(const CategoryBytes& bytes, int64_t whole) {
  std::string html = "<div class=bar>";
  for (size_t i = 0; i < bytes.size(); ++i)
    if (bytes[i] > 0)
      html += fmt::format(R"(<span title="{} {}" style="width:{:.2f}%;background:{}"></span>)", kMemoryCategories[i],
                          format_bytes(bytes[i]), 100.0 * static_cast<double>(bytes[i]) / static_cast<double>(whole),
                          kColours[i]);
  return html + "</div>";
}

std::string legend(const CategoryBytes& bytes) {
  std::string html = "<p>";
  for (size_t i = 0; i < bytes.size(); ++i)
    if (bytes[i] > 0)
      html += fmt::format(R"(<span class=key><i style="background:{}"></i>{} {}</span>)", kColours[i],
                          kMemoryCategories[i], format_bytes(bytes[i]));
  return html + "</p>";
}

/// At most `count` moments, the highest of each stretch.
std::vector<MemoryMoment> thinned(const std::vector<MemoryMoment>& moments, size_t count) {
  if (moments.size() <= count) return moments;
  std::vector<MemoryMoment> result;
  for (size_t i = 0; i < count; ++i) {
    const auto begin = moments.begin() + static_cast<std::ptrdiff_t>(moments.size() * i / count),
               end = moments.begin() + static_cast<std::ptrdiff_t>(moments.size() * (i + 1) / count);
    result.push_back(*std::max_element(
        begin, end, [](const auto& a, const auto& b) { return sum(a.by_category) < sum(b.by_category); }));
  }
  return result;
}

/// Memory by category, stacked, over the events of the run; phases are marked.
std::string timeline(const DryRun& run) {
  constexpr double kWidth = 1000, kHeight = 300, kTop = 34;
  const auto moments = thinned(run.ledger->timeline(), 700);
  if (moments.empty()) return {};
  int64_t highest = 1;
  for (const auto& m : moments) highest = std::max(highest, sum(m.by_category));
  const auto x = [&](size_t i) { return kWidth * static_cast<double>(i) / static_cast<double>(moments.size()); };
  const auto y = [&](int64_t bytes) {
    return kTop + kHeight * (1 - static_cast<double>(bytes) / static_cast<double>(highest));
  };
  std::string svg =
      fmt::format(R"(<svg viewBox="0 0 {} {}" role=img aria-label="memory over time">)", kWidth, kTop + kHeight + 4);
  std::vector<int64_t> below(moments.size(), 0);
  for (size_t c = 0; c < kNumMemoryCategories; ++c) {
    std::string upper, lower;
    bool any = false;
    for (size_t i = 0; i < moments.size(); ++i) {
      const int64_t from = below[i], to = from + moments[i].by_category[c];
      any = any || to > from;
      upper += fmt::format("{:.1f},{:.1f} {:.1f},{:.1f} ", x(i), y(to), x(i + 1), y(to));
      lower = fmt::format("{:.1f},{:.1f} {:.1f},{:.1f} ", x(i + 1), y(from), x(i), y(from)) + lower;
      below[i] = to;
    }
    if (any) svg += fmt::format(R"(<polygon points="{}{}" fill="{}"/>)", upper, lower, kColours[c]);
  }
  double labels_end = 0;  // of the last one written
  for (size_t i = 0; i < moments.size(); ++i) {
    if (i > 0 && moments[i].phase == moments[i - 1].phase) continue;
    svg += fmt::format(R"x(<line x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}" stroke="var(--line)"/>)x", x(i), kTop,
                       kTop + kHeight);
    const auto& name = run.report.figures.phases[moments[i].phase].name;
    const double width = 6.2 * static_cast<double>(name.size());
    if (x(i) < labels_end || x(i) + width > kWidth) continue;
    svg += fmt::format(R"(<text x="{:.1f}" y="{}">{}</text>)", x(i) + 3, kTop - 8, escaped(name));
    labels_end = x(i) + width;
  }
  return svg + fmt::format(R"(<text x="{}" y="12" text-anchor="end">highest: {}</text></svg>)", kWidth,
                           format_bytes(highest));
}

/// "layers.7" before "layers.10".
bool in_natural_order(const std::string& a, const std::string& b) {
  const auto split = [](const std::string& name) {
    const auto digits = name.find_last_not_of("0123456789") + 1;
    return std::pair(name.substr(0, digits),
                     name.size() - digits > 9 || digits == name.size() ? 0 : std::stol(name.substr(digits)));
  };
  return split(a) < split(b);
}

std::string modules(const MemoryPeak& peak) {
  std::vector<std::pair<std::string, CategoryBytes>> rows;
  for (const auto& [name, bytes] : peak.by_module)
    if (sum(bytes) > 0) rows.emplace_back(name.empty() ? "(other)" : name, bytes);
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return sum(a.second) != sum(b.second) ? sum(a.second) > sum(b.second) : in_natural_order(a.first, b.first);
  });
  const int64_t largest = rows.empty() ? 1 : sum(rows[0].second);
  std::string html = "<table>";
  for (const auto& [name, bytes] : rows)
    html += fmt::format("<tr><td>{}<td class=n>{}<td>{}", escaped(name), format_bytes(sum(bytes)), bar(bytes, largest));
  return html + "</table>";
}

std::string phases(const MemoryFigures& f) {
  std::string html = "<table>";
  for (const auto& phase : f.phases)
    if (phase.peak.bytes > 0)
      html += fmt::format("<tr><td>{}<td class=n>{}<td>{}", escaped(phase.name), format_bytes(phase.peak.bytes),
                          bar(phase.peak.by_category, f.peak_allocated_bytes()));
  return html + "</table>";
}

std::string ablation(const std::vector<AblationRow>& rows) {
  if (rows.empty()) return {};
  std::string html = "<section><h2>What each technique brings</h2><table><tr><th>technique<th>peak<th>change<th>time";
  for (const auto& row : rows)
    html += fmt::format("<tr><td>{}<td class=n>{}<td class=n>{}{}<td class=n>{:.2f}x", escaped(row.change),
                        format_bytes(row.peak_bytes), row.delta_bytes < 0 ? "&minus;" : "+",
                        format_bytes(std::abs(row.delta_bytes)), row.relative_time);
  return html + "</table></section>";
}

std::string verdicts(const std::vector<HardwareVerdict>& devices) {
  std::string html = "<table><tr><th>device<th>has<th>needed<th>";
  for (const auto& d : devices)
    html += fmt::format(
        "<tr><td>{}<td class=n>{}<td class=n>{}<td>{}", escaped(d.name), format_bytes(d.capacity_bytes),
        format_bytes(d.total_bytes),
        d.total_bytes <= d.capacity_bytes ? "<span class=good>fits</span>" : "<span class=bad>does not fit</span>");
  return html + "</table>";
}

}  // namespace

void write_memory_page(const std::filesystem::path& file, const DryRun& run,
                       const std::vector<HardwareVerdict>& devices) {
  const auto& report = run.report;
  const auto& f = report.figures;
  const auto& peak = f.phases[f.peak_phase];
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\n"
      "<title>Memory of {0} on {1}</title>\n<style>{2}</style>\n<main>\n<h1>Memory of {0} on {1}</h1>\n",
      escaped(report.command), escaped(report.hardware), kStyle);
  html += fmt::format(
      "<p>{} in all: {} reserved by the allocator, {} outside it. Highest in <b>{}</b>: {} allocated.</p>\n",
      format_bytes(f.total_bytes()), format_bytes(f.peak_reserved_bytes), format_bytes(f.overhead_bytes),
      escaped(peak.name), format_bytes(f.peak_allocated_bytes()));
  if (report.time)
    html += fmt::format("<p>A step takes at least {:.3g} s there ({:.0f} % of it recomputing).</p>\n",
                        report.time->total(), 100 * report.time->recompute / std::max(1e-12, report.time->total()));
  html += "<section><h2>Does it fit?</h2>" + verdicts(devices) + "</section>\n";
  html +=
      "<section><h2>Memory over time</h2><div>" + legend(peak.peak.by_category) + timeline(run) + "</div></section>\n";
  html += "<section><h2>At the peak, by part of the model</h2>" + modules(peak.peak) + "</section>\n";
  html += "<section><h2>Peak of each phase</h2>" + phases(f) + "</section>\n" + ablation(report.ablation) +
          "</main></html>\n";
  write_file_atomic(file, html);
}

}  // namespace vlmtune
