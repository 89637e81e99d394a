#include "lib/data/dataset.h"

#include <algorithm>

#include "lib/base/errors.h"
#include "lib/data/json_rows.h"
#include "lib/data/row_file.h"

namespace vlmtune {

struct Dataset::Impl {
  DatasetOptions options;
  std::vector<std::unique_ptr<RowFile>> files;
  std::vector<double> weights;  // of each file
  std::vector<int64_t> ends;    // rows up to and with each file

  struct Position {
    const RowFile& file;
    int64_t row;
  };
  RowContext context(const Position& position) const {
    return {position.file.place(position.row), options.image_folder, position.file.path().parent_path(), options.format,
            options.needs_answer};
  }
  Position find(int64_t i) const {
    VLMTUNE_CHECK(i >= 0 && !ends.empty() && i < ends.back(), "row {} is not in the data set", i);
    const auto f = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), i) - ends.begin());
    return {*files[f], f == 0 ? i : i - ends[f - 1]};
  }
};

Dataset Dataset::open(const DatasetOptions& options) {
  if (options.files.empty()) throw usage_error("no data file is given");
  auto impl = std::make_shared<Impl>();
  impl->options = options;
  for (const DataFile& file : options.files) {
    if (!(file.weight > 0 && file.weight <= 1e6))
      throw usage_error("{}: the weight is {}, expected a number above 0", file.path.string(), file.weight);
    for (const auto& path : expand_braces(file.path.string())) {
      impl->files.push_back(open_row_file(path));
      impl->weights.push_back(file.weight);
      impl->ends.push_back((impl->ends.empty() ? 0 : impl->ends.back()) + impl->files.back()->size());
    }
  }
  Dataset dataset;
  dataset.impl_ = std::move(impl);
  return dataset;
}

int64_t Dataset::size() const { return impl_->ends.back(); }

Row Dataset::row(int64_t i) const {
  const auto position = impl_->find(i);
  return parse_row(position.file.read(position.row), impl_->context(position));
}

std::string Dataset::row_id(int64_t i) const {
  const auto position = impl_->find(i);
  return parse_row_id(position.file.read(position.row), impl_->context(position));
}

std::string Dataset::place(int64_t i) const {
  const auto [file, row] = impl_->find(i);
  return file.place(row);
}

int64_t Dataset::row_bytes(int64_t i) const {
  const auto [file, row] = impl_->find(i);
  return file.row_bytes(row);
}

bool Dataset::has_image(int64_t i) const {
  const auto [file, row] = impl_->find(i);
  return file.has_image(row);
}

std::vector<Dataset::FileRows> Dataset::files() const {
  std::vector<FileRows> rows;
  for (size_t f = 0; f < impl_->files.size(); ++f) {
    const int64_t count = impl_->files[f]->size();
    rows.push_back({impl_->ends[f] - count, count, impl_->weights[f]});
  }
  return rows;
}

}  // namespace vlmtune
