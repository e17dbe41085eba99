// C++ wrapper of the library digits: a RAII instance, spans for arrays, exceptions.
#pragma once

#include "digits.h"

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>

namespace digits {

constexpr std::size_t pixels = 28 * 28;
using Likely = std::array<float, 10>;

class Error : public std::runtime_error {
 public:
  explicit Error(std::int32_t status) : std::runtime_error(digits_status_text(status)), status(status) {}
  std::int32_t status;
};

inline void check(std::int32_t status) {
  if (status != SHLO_OK) throw Error(status);
}

// An instance. Its calls are serialized: each thread should have an instance of its own.
class Network {
 public:
  // `threads`: maximum threads of a call; 0: one for each processor.
  explicit Network(int threads = 0) {
    shlo_options options{};
    options.bytes = sizeof options;
    options.threads = threads;
    digits_instance *made = nullptr;
    check(digits_create(&made, &options));
    instance.reset(made);
  }

  // Probability of each digit.
  Likely operator()(std::span<const std::uint8_t, pixels> picture) {
    Likely likely;
    check(digits_main(instance.get(), picture.data(), likely.data()));
    return likely;
  }

 private:
  struct Destroy {
    void operator()(digits_instance *instance) const { digits_destroy(instance); }
  };
  std::unique_ptr<digits_instance, Destroy> instance;
};

}  // namespace digits
