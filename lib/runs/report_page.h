// The fixed parts of report.html: style, markup and the script that draws the curves.
#pragma once
#include <string_view>

namespace vlmtune {

extern const std::string_view kReportStyle;
extern const std::string_view kReportScript;

}  // namespace vlmtune
