// The data of these programmes: handwritten digits of 8 x 8 pixels. Each line of the file has 64
// values from 0 to 16, and the digit (gunzip -c data/digits.csv.gz > digits.csv).
#pragma once
#include <torch/torch.h>

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

class Digits : public torch::data::datasets::Dataset<Digits> {
 public:
  // Lines whose number is a multiple of 10 are for tests, and all others are for training.
  Digits(const std::string& file, bool is_test) {
    std::ifstream text(file);
    if (!text) throw std::runtime_error("cannot read " + file);
    std::string line;
    for (int number = 0; std::getline(text, line); ++number)
      if ((number % 10 == 0) == is_test) add(line);
  }
  torch::data::Example<> get(size_t index) override { return samples_.at(index); }
  std::optional<size_t> size() const override { return samples_.size(); }

 private:
  void add(const std::string& line) {
    std::istringstream numbers(line);
    std::vector<float> values;
    for (float value = 0; numbers >> value; numbers.ignore()) values.push_back(value);
    const auto digit = static_cast<int64_t>(values.back());
    values.pop_back();
    samples_.emplace_back(torch::tensor(values).view({1, 8, 8}) / 16, torch::tensor(digit));
  }
  std::vector<torch::data::Example<>> samples_;
};
