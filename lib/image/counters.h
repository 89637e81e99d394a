// For processor.cpp: its part of image_counters().
#pragma once

namespace vlmtune {

void count_processed_image();

}  // namespace vlmtune
