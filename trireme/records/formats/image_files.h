// Records that are image files: what image folders and image lists have in common.
#pragma once
#include "indexed_files.h"

namespace trireme::records {

// An entry's offset and extra are the place and the size of the file's name in the index's names;
// its file is always 0.
class ImageFilesReader : public Reader {
 public:
  ImageFilesReader(std::filesystem::path base, std::shared_ptr<const Index> index,
                   UnpackLimits limits);
  int64_t size() const override { return static_cast<int64_t>(index_->entries().size()); }
  void read(int64_t index, Record& record) const override;
  std::string place(int64_t index) const override;
  const std::vector<FieldSpec>& fields() const override { return fields_; }
  const std::string& content() const override { return index_->content(); }
  std::optional<int64_t> label(int64_t index) const override;
  int64_t stamp(int64_t index) const override;
  std::vector<std::string> class_names() const override { return class_names_; }
  std::vector<int64_t> damaged() const override { return numbers_of_damaged(*index_); }

 private:
  Entry entry_of(int64_t index) const;
  std::string path_of(const Entry& entry) const;

  std::string base_;  // With a slash at its end. Records are read too often for paths.
  std::shared_ptr<const Index> index_;
  std::vector<FieldSpec> fields_;
  std::vector<std::string> class_names_;
  UnpackLimits limits_;
};

// True for the names of jpg, jpeg, png and webp files, in any case.
bool is_image_name(std::string_view name);
// Adds a file to the index, as a damaged record if it is empty. Throws Error if it is missing, or
// if it is a link that leads out of `base`, which is canonical.
void add_image(IndexContent& content, const std::filesystem::path& base, const std::string& name,
               int64_t label);
// Adds the place of a file, which has these bytes.
void add_name(IndexContent& content, const std::string& name, int64_t label, uint64_t bytes);
// Throws Damage if a file that was missing or empty has become another one.
void check_damaged_images(const Index& index, const std::filesystem::path& base);

}  // namespace trireme::records
