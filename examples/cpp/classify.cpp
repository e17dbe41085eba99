// Recognizes the digits in pictures, in two threads: ./classify 0.pgm 1.pgm ...
#include "network.hpp"

#include <algorithm>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

namespace {

using Picture = std::array<std::uint8_t, digits::pixels>;

Picture read(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + ": cannot be read");
  std::string magic;
  int width = 0, height = 0, most = 0;
  file >> magic >> width >> height >> most;
  file.get();  // end of the line
  Picture picture;
  file.read(reinterpret_cast<char *>(picture.data()), picture.size());
  if (!file || magic != "P5" || width != 28 || height != 28 || most != 255)
    throw std::runtime_error(path + ": not a PGM file of 28 x 28 pixels");
  return picture;
}

std::ptrdiff_t best(const digits::Likely &likely) {
  return std::max_element(likely.begin(), likely.end()) - likely.begin();
}

}  // namespace

int main(int count, char **arguments) try {
  if (count < 2) throw std::runtime_error("usage: classify PICTURE.pgm ...");
  std::vector<std::string> paths(arguments + 1, arguments + count);
  std::vector<Picture> pictures;
  for (const auto &path : paths) pictures.push_back(read(path));
  std::vector<std::ptrdiff_t> found(pictures.size());

  std::vector<digits::Network> networks;
  for (int i = 0; i < 2; i++) networks.emplace_back(1);
  {
    std::vector<std::jthread> threads;
    for (std::size_t first = 0; first < networks.size(); first++)
      threads.emplace_back([&, first] {
        for (std::size_t i = first; i < pictures.size(); i += networks.size())
          found[i] = best(networks[first](pictures[i]));
      });
  }
  for (std::size_t i = 0; i < paths.size(); i++) std::cout << paths[i] << " is a " << found[i] << '\n';
} catch (const std::exception &error) {
  std::cerr << "classify: " << error.what() << '\n';
  return 1;
}
