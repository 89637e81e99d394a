// A look at every row of a data set before anything is trained on it.
#pragma once
#include <map>
#include <string>

#include "lib/data/dataset.h"
#include "lib/data/example.h"

namespace vlmtune {

/// What the rows of a data set come to. Tokens and pictures are those of the usable rows.
struct DatasetCheck {
  int64_t rows = 0;
  int64_t bad = 0;        // damaged rows and pictures
  int64_t no_labels = 0;  // nothing to train on
  int64_t too_long = 0;   // longer than the builder's max_length, whatever becomes of them
  int64_t usable = 0;
  int64_t text_tokens = 0, image_tokens = 0, label_tokens = 0, images = 0;
  std::map<int64_t, int64_t> lengths;  // tokens of a row before anything is cut -> rows; bad ones left out
};

/// Measures every row with `num_workers` threads (0: this one); pictures are looked at by their headers. Rows that are bad,
/// have no labels, or are too long where that is an error, are named by log_warning, in order. Stops early at an interrupt
/// (interrupt_signal). Errors: other than input_error, from building a sample.
DatasetCheck check_dataset(const Dataset& dataset, const ExampleBuilder& builder, int num_workers);

/// The counts, and a histogram of lengths with the share beyond `max_length`, as lines for people.
std::string describe_check(const DatasetCheck& check, int64_t max_length);

}  // namespace vlmtune
